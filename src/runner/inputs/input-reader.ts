import { resolve } from 'node:path'
import * as core from '@actions/core'
import type { z } from 'zod/mini'
import { basicCredentials, type GitTokens, parseGitTokens } from '../../core/content/git-tokens.ts'
import type { SourceFile } from '../../core/document/source-file.ts'
import { ConfigError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { parseSettings, type Settings } from '../../core/plan/settings.ts'
import { SHORTEST_REDACTED } from '../../core/secrets.ts'
import { leadsIntoRoot, readStart, readStartInside } from './file-input.ts'
import { projectRootSchema } from './input-schemas.ts'

/** The secrets and problems that were found while the inputs of a request were read. */
export interface GivenInputs {
  /** Every secret that was read, including malformed ones. All are masked, and redacted as `createRedactor` does. */
  readonly secrets: readonly string[]
  /**
   * Values that are masked too, but may be ordinary words. They are not redacted if they are part of a fact that the
   * run knows.
   */
  readonly settingValues: readonly string[]
  readonly problems: readonly InputProblem[]
}

export interface InputProblem {
  kind: 'missing' | 'invalid'
  /** The name of the input, or null if the problem belongs to no single input. */
  input: string | null
  message: string
}

type TextSchema<T> = z.ZodMiniType<T, string>

/** The runner passes an empty string for a secret that does not exist, or that this run cannot read. */
const EMPTY_SECRET = 'has no value (is the secret defined in this repository or environment?)'

/**
 * Reads inputs one by one and collects their problems, so that one run reports them all. An empty input counts as left
 * out. An input that is missing or malformed causes a problem, and its value is undefined.
 */
export class InputReader implements GivenInputs {
  readonly problems: InputProblem[] = []
  readonly secrets: string[] = []
  readonly settingValues: string[] = []
  readonly #workspace: string
  /** Kept here, because files that come before the root among the inputs must not lie below it either. */
  readonly #projectRoot = projectRootSchema.safeParse(core.getInput('project-root')).data
  readonly #readFile: (path: string, maxBytes: number) => string

  /** Paths in inputs are relative to `workspace`. If it is `foreign`, someone else may have written its content. */
  constructor(workspace: string, { foreign = false } = {}) {
    this.#workspace = workspace
    this.#readFile = (path, maxBytes) =>
      foreign ? readStartInside(workspace, path, maxBytes) : readStart(resolve(workspace, path), maxBytes)
  }

  /** True if an input that has not been read yet contains more than white space. */
  isGiven(name: string): boolean {
    return core.getInput(name) !== ''
  }

  /** True if an input that has not been read yet is set, but not to `fallback`, its default in action.yml. */
  isChosen(name: string, fallback: string): boolean {
    return this.isGiven(name) && core.getInput(name).toLowerCase() !== fallback
  }

  required<T>(name: string, schema: TextSchema<T>): T | undefined {
    return this.#parse(this.#present(take(name)), schema)
  }

  optional<T>(name: string, schema: TextSchema<T>): T | undefined {
    return this.#parse(take(name), schema)
  }

  /** Returns `fallback` only if the input was left out. A malformed value does not ask for the default. */
  withDefault<T>(name: string, schema: TextSchema<T>, fallback: T): T | undefined {
    const input = take(name)
    return input.text === undefined ? fallback : this.#parse(input, schema)
  }

  /**
   * Reads a secret, masks it in the log at once, and never quotes it. White space belongs to the secret, except for one
   * line break at the end.
   */
  requiredSecret(name: string, schema?: TextSchema<string>): string | undefined {
    return this.#wellFormed(this.#present(this.#takeSecret(name), EMPTY_SECRET), schema)
  }

  /** Like `requiredSecret`, for a secret that may be left out. */
  optionalSecret(name: string, schema?: TextSchema<string>): string | undefined {
    return this.#wellFormed(this.#takeSecret(name), schema)
  }

  /**
   * Reads lines of the form `NAME=value`, as `parseSettings` does. Masks each value on its own, except for short values
   * and Boolean values, and quotes none.
   */
  settings(name: string): Settings {
    const { settings, problems } = parseSettings(takeRaw(name))
    for (const value of new Set(settings.values())) this.#maskSetting(value)
    for (const problem of problems) this.refuse(name, problem)
    return settings
  }

  /**
   * Reads lines `host=token`, as `parseGitTokens` does. Masks each token, both as it is written and in the form that a
   * request sends.
   */
  gitTokens(name: string): GitTokens {
    const text = takeRaw(name)
    for (const secret of text.split(/\r\n|\r|\n/).map(line => line.slice(line.indexOf('=') + 1).trim()))
      if (secret !== '') this.#mask([secret, basicCredentials(secret)])
    const { tokens, problems } = parseGitTokens(text)
    for (const problem of problems) this.refuse(name, problem)
    return tokens
  }

  /** Reads the file that an input names, as `readStart` does; in a foreign workspace, as `readStartInside` does. */
  requiredFile(name: string, maxBytes: number): SourceFile | undefined {
    return this.#read(this.#present(take(name)), maxBytes)
  }

  /** Like `requiredFile`, for an input that may be left out. */
  file(name: string, maxBytes: number): SourceFile | undefined {
    return this.#read(take(name), maxBytes)
  }

  /** Like `file`, for a file that says what to do on a host. Refuses a file whose real path lies below `project-root`. */
  hostFile(name: string, maxBytes: number): SourceFile | undefined {
    const file = this.file(name, maxBytes)
    const root = this.#projectRoot
    if (file === undefined || root === undefined) return file
    if (!leadsIntoRoot(resolve(this.#workspace, file.path), root)) return file
    this.refuse(
      name,
      `names ${file.path}, which lies below project-root, where services and publishers may write: keep it in the repository, or in a directory such as /etc/hub-deploy`,
    )
    return undefined
  }

  /** True if the input was read and has a problem. */
  isRefused(name: string): boolean {
    return this.problems.some(({ input }) => input === name)
  }

  /** Returns the secrets and problems. Call this method after all inputs have been read. */
  given(): GivenInputs {
    const { secrets, settingValues, problems } = this
    return { secrets, settingValues, problems }
  }

  /** Adds a problem about missing inputs; `message` is the whole sentence. */
  require(message: string): void {
    this.problems.push({ kind: 'missing', input: null, message })
  }

  /** Adds a problem; `reason` continues the sentence that the input's name begins. */
  refuse(name: string, reason: string): void {
    this.problems.push({ kind: 'invalid', input: name, message: `${name} ${reason}` })
  }

  #mask(secrets: readonly string[]): void {
    this.secrets.push(...secrets)
    for (const secret of secrets) masked(secret)
  }

  #takeSecret(name: string): TakenInput {
    const secret = takeExactly(name)
    if (secret !== undefined) this.secrets.push(secret)
    return { name, text: masked(secret) }
  }

  #wellFormed({ name, text: secret }: TakenInput, schema: TextSchema<string> | undefined): string | undefined {
    const parsed = secret === undefined ? undefined : schema?.safeParse(secret)
    if (parsed === undefined || parsed.success) return secret
    this.refuse(name, parsed.error.issues[0]?.message ?? 'is malformed')
    return undefined
  }

  /** Keeps short values and Boolean values readable: masking them would garble the log and empty the job's outputs. */
  #maskSetting(value: string): void {
    if (value.trim().length < SHORTEST_REDACTED || /^(true|false)$/i.test(value)) return
    this.settingValues.push(value)
    masked(value)
  }

  #present(input: TakenInput, found = 'was not given'): TakenInput {
    const { name, text } = input
    if (text === undefined)
      this.problems.push({ kind: 'missing', input: name, message: `${name} is required, but ${found}` })
    return input
  }

  #parse<T>({ name, text }: TakenInput, schema: TextSchema<T>): T | undefined {
    if (text === undefined) return undefined
    const parsed = schema.safeParse(text)
    if (parsed.success) return parsed.data
    const expected = parsed.error.issues[0]?.message ?? 'is malformed'
    this.refuse(name, `${expected}, but found "${cleanForeignText(withoutUserinfo(text), 100)}"`)
    return undefined
  }

  #read({ name, text: path }: TakenInput, maxBytes: number): SourceFile | undefined {
    if (path === undefined) return undefined
    const resolved = resolve(this.#workspace, path)
    try {
      return { path, text: this.#readFile(path, maxBytes) }
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      this.refuse(name, `names ${path}, which cannot be read at ${resolved}: ${reason}`)
      return undefined
    }
  }
}

/** Combines all problems into one error: `missing_input` if an input is missing, else `invalid_input`. */
export function inputError(problems: readonly InputProblem[]): ConfigError {
  const code = problems.some(problem => problem.kind === 'missing') ? 'missing_input' : 'invalid_input'
  return new ConfigError(code, `${problems.map(problem => problem.message).join('; ')}. Correct the step's "with:".`)
}

/** An input that was read and removed; the text is undefined if the input was left out. */
interface TakenInput {
  readonly name: string
  readonly text: string | undefined
}

function take(name: string): TakenInput {
  return { name, text: takeRaw(name).trim() || undefined }
}

/** An editor or a shell ends a text with one line break. Every other character may belong to the secret. */
function takeExactly(name: string): string | undefined {
  const text = takeRaw(name)
  return text.trim() === '' ? undefined : text.replace(/\r?\n$/, '')
}

/** Reads an input and removes it from the environment, which child processes inherit. */
function takeRaw(name: string): string {
  const text = core.getInput(name, { trimWhitespace: false })
  delete process.env[`INPUT_${name.toUpperCase()}`]
  return text
}

function masked(secret: string | undefined): string | undefined {
  if (secret === undefined) return undefined
  for (const part of new Set([secret, ...secret.split(/\r?\n/)])) if (part.trim() !== '') core.setSecret(part)
  return secret
}

/** Removes a password from a URL, which may contain one by mistake. */
function withoutUserinfo(text: string): string {
  return text.replace(/\/\/[^/@\s]*@/g, '//***@')
}
