import { MAX_FOREIGN_TEXT_CHARS } from './limits.ts'
import { listFirst } from './quantities.ts'

/** Marks a cut in a text, so that a redactor knows where a secret may have been cut in two. */
export const CUT_MARK = '… (cut)'

// biome-ignore lint/suspicious/noControlCharactersInRegex: it exists to find control characters
const ANSI_SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g
const CONTROL_OR_FORMAT = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu
const WORKFLOW_COMMAND = /:(?=:)|#(?=#\[)/g

/**
 * Makes text from a hub, a child process or an archive safe to print on one line of a workflow log. Removes ANSI
 * sequences, replaces each run of control, direction or zero-width characters with a space, and breaks up anything that
 * the runner would run as a command (`::`, `##[`). Cuts the text after `maxChars` characters, and marks the cut.
 */
export function cleanForeignText(text: string, maxChars: number = MAX_FOREIGN_TEXT_CHARS): string {
  const flat = text
    .slice(0, maxChars * 4)
    .replace(ANSI_SEQUENCE, '')
    .replace(CONTROL_OR_FORMAT, ' ')
    .replace(WORKFLOW_COMMAND, '$&\u00b7')
    .trim()
  const characters = [...flat]
  const isCut = characters.length > maxChars || text.length > maxChars * 4
  return isCut ? `${characters.slice(0, maxChars).join('')}${CUT_MARK}` : flat
}

const MAX_LISTED_NAMES = 20

/** Lists up to 20 cleaned names, separated by commas, and counts the rest, because a publisher may list thousands. */
export function listNames(names: readonly string[]): string {
  return listFirst(
    names.map(name => cleanForeignText(name, 64)),
    MAX_LISTED_NAMES,
  )
}
