import { CUT_MARK, cleanForeignText } from './foreign-text.ts'
import { cellOf } from './markdown.ts'

/** Shorter secrets are not replaced; nor are shorter beginnings of a secret before a cut. */
export const SHORTEST_REDACTED = 4
const CUT_SIGN = CUT_MARK.charAt(0)

/**
 * Returns a function that replaces every secret, and every line of a secret, in a text with `***`. If the text was cut
 * inside a secret, the function also replaces the beginning of that secret. Files and outputs need this function,
 * because the runner masks only the log. Secrets and lines of fewer than 4 characters stay: replacing them would garble
 * every sentence.
 */
export function createRedactor(secrets: readonly (string | undefined)[]): (text: string) => string {
  const known = secrets
    .flatMap(secret => (secret === undefined ? [] : [secret, secret.trim(), ...secret.split(/\r?\n/)]))
    .filter(secret => secret.length >= SHORTEST_REDACTED)
  const forms = [...new Set(known.flatMap(formsOf))].sort((a, b) => b.length - a.length)
  const withSign = forms.filter(form => form.includes(CUT_SIGN))
  return text => redactWhole(redactCut(redactWhole(text, withSign), forms), forms)
}

/**
 * Returns the forms that a secret may have in a text: unchanged, in JSON, in a URL, in Markdown, and cleaned as foreign
 * text.
 */
function formsOf(secret: string): string[] {
  const printed = [secret, cleanForeignText(secret, Number.POSITIVE_INFINITY), cellOf(secret, Number.POSITIVE_INFINITY)]
  const forms = [...printed, ...printed.map(form => JSON.stringify(form).slice(1, -1)), encodeURIComponent(secret)]
  return forms.filter(form => form.length >= SHORTEST_REDACTED)
}

function redactWhole(text: string, forms: readonly string[]): string {
  return forms.reduce((redacted, form) => redacted.replaceAll(form, '***'), text)
}

function redactCut(text: string, forms: readonly string[]): string {
  const pieces = text.split(CUT_SIGN)
  const last = pieces.length - 1
  return pieces.map((piece, index) => (index < last ? redactEnd(piece, forms) : piece)).join(CUT_SIGN)
}

/** Replaces the longest end of the text that is also the beginning of a secret. */
function redactEnd(text: string, forms: readonly string[]): string {
  const length = Math.max(0, ...forms.map(form => commonLength(text, form)))
  return length === 0 ? text : `${text.slice(0, -length)}***`
}

/** Returns how many characters at the end of the text are also the beginning of the secret; 0 if fewer than 4. */
function commonLength(text: string, secret: string): number {
  for (let length = Math.min(text.length, secret.length); length >= SHORTEST_REDACTED; length--) {
    if (text.endsWith(secret.slice(0, length))) return length
  }
  return 0
}
