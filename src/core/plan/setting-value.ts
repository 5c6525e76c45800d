/**
 * Returns a value as a settings file contains it, in the one form that a shell, python-dotenv and Node's `parseEnv`
 * read alike. Returns undefined if there is no such form: the three disagree about escapes in double quotes, and a
 * single quote ends single quotes.
 */
export function quoteSetting(value: string): string | undefined {
  if (PLAIN.test(value)) return value
  if (isUnsafe(value)) return undefined
  if (!value.includes("'")) return `'${value}'`
  return /["\\$`]/.test(value) ? undefined : `"${value}"`
}

const PLAIN = /^[A-Za-z0-9_./:@%+,=-]*$/

/**
 * True for a value that no quotes protect: line breaks, NUL and invalid Unicode; two backslashes, which python-dotenv
 * turns into one; a backslash at the end, after which python-dotenv looks for another quote; and `${NAME}`, which
 * python-dotenv replaces even in single quotes.
 */
function isUnsafe(value: string): boolean {
  return /[\r\n\0]|\\\\|\\$|\$\{[^}]*\}/.test(value) || !value.isWellFormed()
}
