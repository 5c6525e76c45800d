/**
 * The characters that YAML does not accept; U+FFFD, which stands for bytes that are not UTF-8; and a carriage return
 * without a line feed, which ends a line for YAML but not for our parser.
 */
const UNREADABLE = /[^\t\n\r\x20-\x7e\x85\u{a0}-\u{d7ff}\u{e000}-\u{fffc}\u{10000}-\u{10ffff}]|\r(?!\n)/u

/**
 * Characters that end a line in YAML 1.1 but not in 1.2, and byte order marks after the first character, which only
 * some parsers skip.
 */
const READ_DIFFERENTLY = /[\x85\u2028\u2029]|(?<!^)\ufeff/u

/**
 * Returns the first character that cannot be read reliably, and its line: `U+0000 in line 3`. Undefined if there is
 * none.
 */
export function unreadableCharacter(text: string): string | undefined {
  return firstMatch(text, UNREADABLE)
}

/** Like `unreadableCharacter`, for characters that some YAML parsers read as the end of a line, or skip. */
export function ambiguousCharacter(text: string): string | undefined {
  return firstMatch(text, READ_DIFFERENTLY)
}

function firstMatch(text: string, pattern: RegExp): string | undefined {
  const match = pattern.exec(text)
  if (match === null) return undefined
  const line = text.slice(0, match.index).split('\n').length
  return `${nameOf(match[0])} in line ${line}`
}

function nameOf(character: string): string {
  if (character === '\ufffd') return 'U+FFFD, or bytes that are not UTF-8,'
  if (character === '\r') return 'a carriage return without a line feed'
  return `U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`
}
