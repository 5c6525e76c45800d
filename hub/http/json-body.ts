import type { Context } from 'hono'
import type { z } from 'zod'
import { HubError } from '../errors.ts'
import { parseInput } from '../names.ts'

/**
 * Reads the JSON body. Throws HubError 415 for a different content type, and 400 for malformed JSON or a wrong field.
 */
export async function readJsonBody<T>(c: Context, schema: z.ZodType<T>): Promise<T> {
  const contentType = c.req.header('content-type')?.split(';')[0]?.trim().toLowerCase()
  if (contentType !== 'application/json') throw new HubError(415, 'The Content-Type must be application/json.')
  return parseInput(schema, parseJson(await c.req.text()))
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new HubError(400, 'The request body is not valid JSON.')
  }
}
