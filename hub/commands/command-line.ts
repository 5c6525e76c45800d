import { type ParseArgsOptionsConfig, parseArgs } from 'node:util'
import type { ZodType } from 'zod'
import { UsageError } from '../errors.ts'

/**
 * Names of options that both npm and the hub have. npm sets the variables of these options even if they were not given:
 * some always, some from a user's settings.
 */
const NPM_OPTIONS: ReadonlySet<string> = new Set(['cache', 'git', 'name', 'only', 'version'])

/**
 * Parses the arguments strictly. Throws UsageError for an unknown or incomplete option, for an option that npm took,
 * and for an excess argument.
 */
export function parseCommandLine<T extends ParseArgsOptionsConfig>(args: string[], options: T, positionals = 0) {
  requireOptionsFromNpm(Object.keys(options))
  const parsed = parseOrThrow(args, options)
  if (parsed.positionals.length > positionals) {
    throw new UsageError(
      `This command does not take the argument ${JSON.stringify(parsed.positionals[positionals])}: remove it.`,
    )
  }
  return parsed
}

/** Throws UsageError if the option was not given or is empty. */
export function requireOption(name: string, value: string | undefined): string {
  if (!value) throw new UsageError(`The option --${name} is required: --help explains it.`)
  return value
}

/**
 * Throws UsageError if the schema rejects the option's text. The error quotes the text, so the text must not be a
 * secret.
 */
export function requireForm(name: string, text: string | undefined, schema: ZodType<string>): void {
  const { error } = schema.optional().safeParse(text)
  if (error === undefined) return
  throw new UsageError(`The option --${name} ${error.issues[0]?.message}, not ${JSON.stringify(text)}: correct it.`)
}

/** True if the arguments ask for a usage text. */
export function asksForHelp(args: readonly string[]): boolean {
  const options = args.includes('--') ? args.slice(0, args.indexOf('--')) : args
  return options.includes('--help') || options.includes('-h')
}

/**
 * Throws UsageError for an option that npm took: npm keeps the options before `--` to itself, in variables, and passes
 * on at most their values.
 */
export function requireOptionsFromNpm(names: readonly string[]): void {
  const script = process.env['npm_lifecycle_event']
  const taken = names.find(name => !NPM_OPTIONS.has(name) && process.env[`npm_config_${name.replaceAll('-', '_')}`])
  if (script === undefined || taken === undefined) return
  throw new UsageError(
    `npm has taken the option --${taken} for itself: type "--" before your options, as in "npm run ${script} -- --${taken}".`,
  )
}

function parseOrThrow<T extends ParseArgsOptionsConfig>(args: string[], options: T) {
  try {
    return parseArgs({ args, options, allowPositionals: true, strict: true })
  } catch (error) {
    throw new UsageError(describeMistake(error, Object.keys(options)))
  }
}

function describeMistake(error: unknown, known: readonly string[]): string {
  const [sentence = ''] = (error instanceof Error ? error.message : String(error)).split('\n')
  const { code } = error as NodeJS.ErrnoException
  const option = /'(-[^' ]*)/.exec(sentence)?.[1] ?? ''
  if (code === 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE') return describeValue(option, sentence)
  if (code !== 'ERR_PARSE_ARGS_UNKNOWN_OPTION') return sentence
  const all = [...known, 'help'].map(name => `--${name}`).join(', ')
  return `There is no option ${option}: this command has ${all}.`
}

function describeValue(option: string, sentence: string): string {
  if (sentence.includes('does not take an argument')) return `The option ${option} takes no value: remove the value.`
  if (sentence.includes('argument missing')) return `The option ${option} needs a value: add one, or remove the option.`
  return `The option ${option} needs a value, but the next word begins with "-": if that word is the value, write ${option}=VALUE.`
}

const USUAL_NAME = /^[A-Z_][A-Z0-9_]*$/

/** An option that names the environment variable with a secret. */
interface SecretVariable {
  readonly option: string
  readonly variable: string
  /** The word that messages use for the secret. */
  readonly purpose: string
}

/**
 * Reads a secret. Throws UsageError if the variable is empty or not set. The error quotes `variable` only if it looks
 * like a variable's name: a user may have typed the secret itself.
 */
export function readSecretVariable({ option, variable, purpose }: SecretVariable): string {
  const secret = process.env[variable]
  if (secret) return secret
  if (USUAL_NAME.test(variable))
    throw new UsageError(`The environment variable ${variable} is empty or not set: set it to the ${purpose}.`)
  throw new UsageError(
    `The option --${option} names no environment variable that is set and not empty: give the name of the variable that contains the ${purpose}, not the ${purpose} itself.`,
  )
}
