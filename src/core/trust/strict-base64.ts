/**
 * Decodes a base64 text. Returns undefined unless the text encodes exactly `length` bytes in the one canonical form:
 * standard alphabet, padded, no white space, and no stray bits in the last character.
 */
export function decodeBase64(text: string, length: number): Buffer | undefined {
  if (text.length !== Math.ceil(length / 3) * 4) return undefined
  const bytes = Buffer.from(text, 'base64')
  return bytes.length === length && bytes.toString('base64') === text ? bytes : undefined
}
