/**
 * Builds the text that `loadBundle` compiles as it is: a function, all in ASCII, whose code begins on its first line.
 * If any character were not ASCII, each character would take two bytes in memory. If the function's head were added
 * only when the bundle is loaded, memory would hold a second copy of the text. Throws for a character outside ASCII in
 * a raw string or after a backslash, because escaping it there would change the meaning.
 */
export function bundleText(code: string): string {
  if (/String\.raw`[^`]*[^\0-\x7f]|\\[^\0-\x7f]/.test(code))
    throw new Error(
      'A raw string, and the character after a backslash, must be ASCII: an escape would change the meaning.',
    )
  const ascii = code.replace(/[^\0-\x7f]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return `(function (module, exports, require, __dirname) {${ascii}\n})\n`
}
