import type { VariableNames } from '../content/plugin-yaml.ts'
import type { SourceFile } from '../document/source-file.ts'
import { DeploymentError } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'

export interface SeededSettings {
  text: string
  /** Names whose value came from the step's own environment. */
  fromEnvironment: string[]
}

/** The step's own variables. */
type Environment = Readonly<Record<string, string | undefined>>

const ASSIGNMENT = /^(\s*(?:export\s+)?)([A-Za-z_][A-Za-z0-9_]*)(\s*=)(.*)$/

/**
 * Builds a settings file from a template of `KEY=value` lines: a key's value comes from `environment` where it is set
 * there, the other lines stay unchanged; declared keys that the template lacks are appended when set. Throws
 * DeploymentError `step_failed` when a value contains a line break, or a required key ends up empty.
 */
export function seedSettings(template: string, names: VariableNames, environment: Environment): SeededSettings {
  const keys = [...names.required, ...names.optional]
  refuseUnusableNames(keys)
  const seeder = new SettingsSeeder(environment)
  for (const line of template.replace(/\r\n?/g, '\n').replace(/\n$/, '').split('\n')) seeder.addLine(line)
  for (const key of keys) seeder.addMissing(key)
  refuseEmpty(names.required.filter(key => isEmpty(seeder.valueOf(key))))
  return seeder.settings
}

/**
 * Refuses existing settings in which a required key is missing or empty: DeploymentError `step_failed`, naming the keys
 * and the file.
 */
export function verifySettings(settings: SourceFile, required: readonly string[]): void {
  refuseUnusableNames(required)
  const missing = unsetSettings(settings.text, required)
  if (missing.length === 0) return
  throw new DeploymentError(
    'step_failed',
    `plugin.yaml requires ${missing.join(', ')}, which ${settings.path} does not set: add ${itOrThem(missing)} there, because a deployment never changes existing settings.`,
  )
}

/** Which of the keys settings lack or leave empty. */
export function unsetSettings(text: string, keys: readonly string[]): string[] {
  const set = new Set(
    text.split(/\r?\n/).flatMap(line => {
      const [, , key, , value] = ASSIGNMENT.exec(line) ?? []
      return key === undefined || isEmpty((value ?? '').trim()) ? [] : [key]
    }),
  )
  return keys.filter(key => !set.has(key))
}

class SettingsSeeder {
  readonly #environment: Environment
  readonly #lines: string[] = []
  readonly #values = new Map<string, string>()
  readonly #fromEnvironment = new Set<string>()

  constructor(environment: Environment) {
    this.#environment = environment
  }

  get settings(): SeededSettings {
    return { text: `${this.#lines.join('\n')}\n`, fromEnvironment: [...this.#fromEnvironment] }
  }

  valueOf(key: string): string | undefined {
    return this.#values.get(key)
  }

  addLine(line: string): void {
    const [, lead, key, equals, own] = ASSIGNMENT.exec(line) ?? []
    const value = key === undefined ? undefined : this.#take(key)
    if (key !== undefined) this.#values.set(key, value ?? (own ?? '').trim())
    this.#lines.push(value === undefined ? line : `${lead}${key}${equals}${quoted(value)}`)
  }

  addMissing(key: string): void {
    const value = this.#values.has(key) ? undefined : this.#take(key)
    if (value === undefined) return
    this.#values.set(key, value)
    this.#lines.push(`${key}=${quoted(value)}`)
  }

  #take(key: string): string | undefined {
    const value = this.#environment[key]
    if (value === undefined || value === '') return undefined
    if (/[\r\n\0]/.test(value)) throw unusableValue(key)
    this.#fromEnvironment.add(key)
    return value
  }
}

function quoted(value: string): string {
  if (!/^\s|\s$|["'\\#$`]/.test(value)) return value
  return value.includes("'") ? `"${value.replace(/["\\$`]/g, '\\$&')}"` : `'${value}'`
}

function isEmpty(value: string | undefined): boolean {
  return value === undefined || value === '' || value === '""' || value === "''" || value.startsWith('#')
}

function refuseUnusableNames(names: readonly string[]): void {
  const unusable = names.filter(name => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
  if (unusable.length === 0) return
  throw new DeploymentError(
    'step_failed',
    `plugin.yaml asks under environment for ${unusable.map(name => `"${cleanForeignText(name, 60)}"`).join(', ')}, which cannot be the name of a variable: the publisher must rename it.`,
  )
}

function unusableValue(key: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `The value of ${key} in the step's environment contains a line break, which a settings file cannot store: encode it (as base64, for instance).`,
  )
}

function refuseEmpty(keys: readonly string[]): void {
  if (keys.length === 0) return
  throw new DeploymentError(
    'step_failed',
    `plugin.yaml requires ${keys.join(', ')}, which neither the template nor the step's environment sets: add ${itOrThem(keys)} under env: of the step.`,
  )
}

function itOrThem(keys: readonly string[]): string {
  return keys.length === 1 ? 'it' : 'them'
}
