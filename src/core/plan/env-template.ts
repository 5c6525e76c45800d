import { DeploymentError } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'

export interface SeededSettings {
  text: string
  /** Names whose value came from the step's own environment. */
  fromEnvironment: string[]
}

const ASSIGNMENT = /^(\s*(?:export\s+)?)([A-Za-z_][A-Za-z0-9_]*)(\s*=)(.*)$/

/**
 * A settings file made from a template of `KEY=value` lines: a key's value is taken from `environment` where it is
 * set there, the other lines stay as they are; required keys that the template lacks are appended when set.
 * Throws DeploymentError `step_failed` when a value holds a line break, or a required key ends up empty.
 */
export function seedSettings(
  template: string,
  required: readonly string[],
  optional: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): SeededSettings {
  refuseUnusableNames([...required, ...optional])
  const fromEnvironment = new Set<string>()
  const filled = new Map<string, string>()
  const ownValue = (key: string): string | undefined => {
    const value = environment[key]
    if (value === undefined || value === '') return undefined
    if (/[\r\n\0]/.test(value)) throw unusableValue(key)
    fromEnvironment.add(key)
    return value
  }
  const lines = template.replace(/\r\n?/g, '\n').replace(/\n$/, '').split('\n')
  const seeded = lines.map(line => {
    const [, lead, key, equals, own] = ASSIGNMENT.exec(line) ?? []
    if (key === undefined) return line
    const value = ownValue(key)
    filled.set(key, value ?? (own ?? '').trim())
    return value === undefined ? line : `${lead}${key}${equals}${quoted(value)}`
  })
  for (const key of [...required, ...optional]) {
    const value = filled.has(key) ? undefined : ownValue(key)
    if (value === undefined) continue
    filled.set(key, value)
    seeded.push(`${key}=${quoted(value)}`)
  }
  refuseEmpty(required.filter(key => isEmpty(filled.get(key))))
  return { text: `${seeded.join('\n')}\n`, fromEnvironment: [...fromEnvironment] }
}

/**
 * Refuses existing settings in which a required key is missing or empty: DeploymentError `step_failed`, naming the keys
 * and the file.
 */
export function verifySettings(text: string, required: readonly string[], path: string): void {
  refuseUnusableNames(required)
  const missing = unsetSettings(text, required)
  if (missing.length === 0) return
  throw new DeploymentError(
    'step_failed',
    `plugin.yaml requires ${missing.join(', ')}, which ${path} does not set: add ${missing.length === 1 ? 'it' : 'them'} there, because a deployment never changes existing settings.`,
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
    `plugin.yaml asks under environment for ${unusable.map(name => `"${cleanForeignText(name, 60)}"`).join(', ')}, which no variable can be called: the publisher has to rename it.`,
  )
}

function unusableValue(key: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `The value of ${key} in the step's environment holds a line break, which a settings file cannot hold: encode it (base64, for instance).`,
  )
}

function refuseEmpty(keys: string[]): void {
  if (keys.length === 0) return
  throw new DeploymentError(
    'step_failed',
    `plugin.yaml requires ${keys.join(', ')}, which neither the template nor the step's environment sets: add ${keys.length === 1 ? 'it' : 'them'} under env: of the step.`,
  )
}
