/**
 * Builds the text that `loadBundle` compiles as it is: a function whose code begins on its first line, all in ASCII.
 * Other characters would make V8 keep two bytes for each, and keep a copy of a concatenated text. Throws for such a
 * character in a raw string or after a backslash, where an escape would change the meaning.
 */
export function bundleText(code: string): string {
  if (/String\.raw`[^`]*[^\0-\x7f]|\\[^\0-\x7f]/.test(code))
    throw new Error('A raw string, and the character behind a backslash, must be ASCII: an escape would change them.')
  const ascii = code.replace(/[^\0-\x7f]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return `(function (module, exports, require, __dirname) {${ascii}\n})\n`
}
