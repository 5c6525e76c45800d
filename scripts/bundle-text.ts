/**
 * Builds the text that `loadBundle` compiles as it is: a function whose code begins on its first line, all in ASCII. A
 * text with other characters would need two bytes for each character in memory, and adding the function's head only
 * when the bundle is loaded would keep a second copy of the text. Throws for a character outside ASCII in a raw string
 * or after a backslash, because escaping it there would change the meaning.
 */
export function bundleText(code: string): string {
  if (/String\.raw`[^`]*[^\0-\x7f]|\\[^\0-\x7f]/.test(code))
    throw new Error(
      'A raw string, and the character after a backslash, must be ASCII: an escape would change the meaning.',
    )
  const ascii = code.replace(/[^\0-\x7f]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return `(function (module, exports, require, __dirname) {${ascii}\n})\n`
}
