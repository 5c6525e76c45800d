import { quoteSetting } from './setting-value.ts'

/** Values for a settings file, by name; used only by `write_env`. */
export type Settings = ReadonlyMap<string, string>

export interface ParsedSettings {
  readonly settings: Settings
  /** The problems, each as part of a sentence, without any value. */
  readonly problems: readonly string[]
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/

/**
 * Parses lines of the form `NAME=value`; a value ends with its line. Ignores empty lines and lines that begin with `#`.
 * Refuses a line without `=`, a name that no variable can have, a repeated name, and a value for which `quoteSetting`
 * finds no form.
 */
export function parseSettings(text: string): ParsedSettings {
  const settings = new Map<string, string>()
  const problems = text.split(/\r\n|\r|\n/).flatMap((line, index) => {
    if (line.trim() === '' || line.trimStart().startsWith('#')) return []
    const problem = addLine(settings, line, index + 1)
    return problem === undefined ? [] : [problem]
  })
  return { settings, problems }
}

/** Adds a line's value. Returns the problem with the line, if any. Does not quote the line, which may be a secret. */
function addLine(settings: Map<string, string>, line: string, number: number): string | undefined {
  const equals = line.indexOf('=')
  const name = line.slice(0, Math.max(0, equals)).trim()
  const value = line.slice(equals + 1)
  if (!NAME.test(name)) return `must consist of NAME=value lines, but line ${number} has a different form`
  if (settings.has(name)) return `must name ${name} only once, but line ${number} names it again`
  settings.set(name, value)
  if (quoteSetting(value) !== undefined) return undefined
  return `must contain, for ${name} in line ${number}, a value that a shell, python-dotenv and Node read alike if it is quoted: encode the value, for example as base64`
}
