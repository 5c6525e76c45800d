import { type IncomingHttpHeaders, validateHeaderName, validateHeaderValue } from 'node:http'
import { ConfigError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'

export type Headers = Record<string, string>

/**
 * Returns the headers under lower-case names. Throws ConfigError `invalid_input` for a name or value that a header
 * cannot carry, such as a secret with a line break. The message names the header, never its value.
 */
export function readRequestHeaders(headers: Headers | undefined): Headers {
  return Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) => [checkedName(name, value), value]))
}

function checkedName(name: string, value: string): string {
  try {
    validateHeaderName(name)
    validateHeaderValue(name, value)
    return name.toLowerCase()
  } catch {
    throw new ConfigError(
      'invalid_input',
      `The value for the header "${cleanForeignText(name, 60)}" contains a character that a header cannot carry: look for a line break or another stray character in the input that has this value.`,
    )
  }
}

/**
 * Returns an answer's headers under lower-case names. The values of a repeated header are joined with `, `, so that a
 * signature header that was sent twice never passes for one of the two. Of a few headers, such as `location`, Node
 * keeps only the first value.
 */
export function readResponseHeaders(headers: IncomingHttpHeaders): Headers {
  const entries = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, [value].flat().join(', ')]],
  )
  return Object.fromEntries(entries)
}
