import type { VariableNames } from '../content/plugin-yaml.ts'
import { DeploymentError } from '../errors.ts'
import { cleanForeignText, listNames } from '../text.ts'
import type { SourceFile } from '../yaml/problems.ts'

/** Values for a settings file, by name; used only by `write_env`. */
export type Settings = ReadonlyMap<string, string>

interface ParsedSettings {
  readonly settings: Settings
  /** The problems, each as part of a sentence, without any value. */
  readonly problems: readonly string[]
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/

/**
 * Parses lines of the form `NAME=value`; a value ends with its line. Drops blanks around the name and the `=`, and
 * ignores empty lines and lines that begin with `#`.
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
  const value = line.slice(equals + 1).trimStart()
  if (!NAME.test(name)) return `must consist of NAME=value lines, but line ${number} has a different form`
  if (settings.has(name)) return `must name ${name} only once, but line ${number} names it again`
  settings.set(name, value)
  if (quoteSetting(value) !== undefined) return undefined
  return `must contain, for ${name} in line ${number}, a value that a shell, python-dotenv and Node read alike if it is quoted: encode the value, for example as base64`
}

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

interface SeededSettings {
  text: string
  /** The names whose values came from the operator's settings. */
  given: string[]
}

const ASSIGNMENT = /^(\s*(?:export\s+)?)([A-Za-z_][A-Za-z0-9_]*)(\s*=)(.*)$/

/**
 * Builds a settings file from a template of `KEY=value` lines. If the operator's settings have a nonempty value for a
 * key, the key gets that value, quoted by `quoteSetting`. The other lines stay unchanged, but all lines end in LF.
 * Appends declared keys that the template lacks if the operator's settings have values for them. `given` is undefined
 * if the action has no input for settings. Throws DeploymentError `step_failed` if a declared key cannot be the name of
 * a variable, if no quoting fits a value, or if a required key ends up empty.
 */
export function seedSettings(template: string, names: VariableNames, given: Settings | undefined): SeededSettings {
  const keys = [...names.required, ...names.optional]
  refuseUnusableNames(keys)
  const seeder = new SettingsSeeder(given ?? new Map())
  for (const line of template.replace(/\r\n?/g, '\n').replace(/\n$/, '').split('\n')) seeder.addLine(line)
  for (const key of keys) seeder.addMissing(key)
  refuseEmpty(
    names.required.filter(key => isEmpty(seeder.valueOf(key))),
    given !== undefined,
  )
  return seeder.settings
}

/**
 * Refuses existing settings in which a required key is missing or empty: throws DeploymentError `step_failed`, which
 * names the keys and the file. Also refuses required keys that cannot be the name of a variable.
 */
export function verifySettings(settings: SourceFile, required: readonly string[]): void {
  refuseUnusableNames(required)
  const missing = unsetSettings(settings.text, required)
  if (missing.length === 0) return
  throw new DeploymentError(
    'step_failed',
    `The part requires ${listNames(missing)}, which ${settings.path} does not set or leaves empty: set ${itOrThem(missing)} there, because no deployment or rollback changes existing settings.`,
  )
}

/** Returns the keys that the settings lack or leave empty. */
export function unsetSettings(text: string, keys: readonly string[]): string[] {
  const values = valuesOf(text)
  return keys.filter(key => isEmpty(values.get(key)))
}

/** Returns the given names that none of the texts sets, not even to an empty value. */
export function unknownSettings(given: Settings, texts: readonly string[]): string[] {
  const known = new Set(texts.flatMap(text => [...valuesOf(text).keys()]))
  return [...given.keys()].filter(name => !known.has(name))
}

/** Returns the keys that both texts set, but to different values. */
export function differingSettings(one: string, other: string): string[] {
  const [values, others] = [valuesOf(one), valuesOf(other)]
  return [...values].flatMap(([key, value]) => (others.has(key) && others.get(key) !== value ? [key] : []))
}

/** Returns the keys that the settings set, even to nothing. */
export function namesIn(text: string): Iterable<string> {
  return valuesOf(text).keys()
}

function valuesOf(text: string): Map<string, string> {
  return new Map(
    text.split(/\r?\n/).flatMap(line => {
      const [, , key, , value = ''] = ASSIGNMENT.exec(line) ?? []
      return key === undefined ? [] : [[key, value.trim()] as const]
    }),
  )
}

class SettingsSeeder {
  readonly #given: Settings
  readonly #lines: string[] = []
  readonly #values = new Map<string, string>()
  readonly #used = new Set<string>()

  constructor(given: Settings) {
    this.#given = given
  }

  get settings(): SeededSettings {
    return { text: `${this.#lines.join('\n')}\n`, given: [...this.#used] }
  }

  valueOf(key: string): string | undefined {
    return this.#values.get(key)
  }

  addLine(line: string): void {
    const [, lead, key, , own] = ASSIGNMENT.exec(line) ?? []
    const value = key === undefined ? undefined : this.#take(key)
    if (key !== undefined) this.#values.set(key, value ?? (own ?? '').trim())
    this.#lines.push(value === undefined ? line : `${lead}${key}=${value}`)
  }

  addMissing(key: string): void {
    const value = this.#values.has(key) ? undefined : this.#take(key)
    if (value === undefined) return
    this.#values.set(key, value)
    this.#lines.push(`${key}=${value}`)
  }

  /**
   * Returns the operator's value for the key, quoted for the file; undefined if the operator set no value or an empty
   * one.
   */
  #take(key: string): string | undefined {
    const value = this.#given.get(key) ?? ''
    if (value === '') return undefined
    const quoted = quoteSetting(value)
    if (quoted === undefined) throw unusableValue(key)
    this.#used.add(key)
    return quoted
  }
}

function isEmpty(value: string | undefined): boolean {
  return value === undefined || value === '' || value === '""' || value === "''" || value.startsWith('#')
}

function refuseUnusableNames(names: readonly string[]): void {
  const unusable = names.filter(name => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
  if (unusable.length === 0) return
  throw new DeploymentError(
    'step_failed',
    `The part lists ${listNames(unusable.map(name => `"${cleanForeignText(name, 50)}"`))} under environment, but a variable's name must consist of letters, digits and "_", and must not start with a digit: the publisher must correct the list.`,
  )
}

function unusableValue(key: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `A shell, python-dotenv and Node cannot read the value of ${key} alike, however it is quoted: encode the value, for example as base64.`,
  )
}

function refuseEmpty(keys: readonly string[], hasInput: boolean): void {
  if (keys.length === 0) return
  const required = `The part requires ${listNames(keys)}, for which`
  throw new DeploymentError(
    'step_failed',
    hasInput
      ? `${required} neither the template nor the settings given as input have a value: add ${itOrThem(keys)} to settings, as NAME=value.`
      : `${required} the template has no value, and a rollback has no input for settings: create the part's settings file by hand (<id>.env, next to the directory of the part), set ${itOrThem(keys)} there, and run again.`,
  )
}

function itOrThem(keys: readonly string[]): string {
  return keys.length === 1 ? 'it' : 'them'
}
