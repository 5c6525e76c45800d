import type { z } from 'zod/mini'
import type { JsonAnswer } from '../net/wire.ts'
import { type HubCall, malformedAnswer, refusalOf } from './answers.ts'

/**
 * What a 2xx answer says. Throws the error of contract 7 for any other status, and `bad_response` for a body that is not
 * what the call's schema wants.
 */
export function parseAnswer<Schema extends z.ZodMiniType>(
  call: HubCall,
  answer: JsonAnswer,
  schema: Schema,
  subject: string,
): z.infer<Schema> {
  if (answer.status < 200 || answer.status > 299) throw refusalOf(call, answer, subject)
  const parsed = schema.safeParse(answer.body)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const field = issue?.path.join('.') ?? ''
  throw malformedAnswer(call, field === '' ? 'a JSON object' : `JSON that holds a proper "${field}"`, subject)
}
