/**
 * Formats a value for a settings file so that a shell, python-dotenv and Node's `parseEnv` read it alike. Returns
 * undefined if no form does that: the three disagree about escapes in double quotes, and a single quote ends single
 * quotes.
 */
export function quoteSetting(value: string): string | undefined {
  if (PLAIN.test(value)) return value
  if (isUnsafe(value)) return undefined
  if (!value.includes("'")) return `'${value}'`
  return /["\\$`]/.test(value) ? undefined : `"${value}"`
}

const PLAIN = /^[A-Za-z0-9_./:@%+,=-]*$/

/**
 * True for a value that no quotes protect: it contains a line break, NUL or invalid Unicode, or python-dotenv would
 * read it differently. python-dotenv turns two backslashes into one, looks for another quote after a final backslash,
 * and replaces `${NAME}` even in single quotes.
 */
function isUnsafe(value: string): boolean {
  return /[\r\n\0]|\\\\|\\$|\$\{[^}]*\}/.test(value) || !value.isWellFormed()
}
