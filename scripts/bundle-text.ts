/**
 * The bundle's text, which `loadBundle` compiles as it is: a function, on whose first line the code begins, all in ASCII.
 * Of other characters, V8 would keep two bytes for each, and of a text that is put together, a copy. Throws for a raw
 * string with such a character, and for one behind a backslash: there an escape means something else.
 */
export function bundleText(code: string): string {
  if (/String\.raw`[^`]*[^\0-\x7f]|\\[^\0-\x7f]/.test(code))
    throw new Error('A raw string, and the character behind a backslash, must be ASCII: an escape would change them.')
  const ascii = code.replace(/[^\0-\x7f]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return `(function (module, exports, require, __dirname) {${ascii}\n})\n`
}
