import { closeSync, constants, fstatSync, openSync, readSync, type Stats, statSync } from 'node:fs'
import { isAbsolute, normalize, resolve } from 'node:path'
import * as core from '@actions/core'
import { z } from 'zod/mini'
import {
  basicCredentials,
  type GitTokens,
  type ParsedTokens,
  parseGitTokens,
  parseSlugKeys,
  type SlugKeys,
} from '../core/content/source.ts'
import { ConfigError, errnoOf } from '../core/errors.ts'
import { hostIdSchema, idSchema, keepPathProblem, MAX_PROJECT_ROOT_BYTES, versionSchema } from '../core/identifiers.ts'
import { parseSettings, type Settings } from '../core/plan/settings.ts'
import { cleanForeignText, SHORTEST_REDACTED } from '../core/text.ts'
import type { SourceFile } from '../core/yaml/problems.ts'
import { NotReadable, openBelowSync } from '../install/files/open.ts'
import { pathBelow } from '../install/files/spelling.ts'
import { walkPath } from '../install/host/permissions.ts'
import { type ActionName, findStrayInputs } from './declared-inputs.ts'

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
  /** Sentences about inputs that have no effect. */
  readonly warnings: readonly string[]
}

interface InputProblem {
  kind: 'missing' | 'invalid'
  /** The name of the input, or null if the problem belongs to no single input. */
  input: string | null
  message: string
}

type TextSchema<T> = z.ZodMiniType<T, string>

/** The runner passes an empty string for a secret that does not exist, or that this run cannot read. */
const EMPTY_SECRET = 'has no value (is the secret defined in this repository or environment?)'

/**
 * Reads inputs one by one and collects their problems, so that one run reports them all. Misspelt inputs are problems. An empty input counts as left
 * out. An input that is missing or malformed causes a problem, and its value is undefined.
 */
export class InputReader implements GivenInputs {
  readonly problems: InputProblem[] = []
  readonly secrets: string[] = []
  readonly settingValues: string[] = []
  readonly warnings: readonly string[]
  readonly #workspace: string
  /** Kept here, because files that come before the root among the inputs must not lie below it either. */
  readonly #projectRoot = projectRootSchema.safeParse(core.getInput('project-root')).data
  readonly #readFile: (path: string, maxBytes: number) => string

  /** Paths in inputs are relative to `workspace`. If it is `foreign`, someone else may have written its content. */
  constructor(action: ActionName, workspace: string, { foreign = false } = {}) {
    const { problems, warnings } = findStrayInputs(action)
    this.problems.push(...problems.map(problem => ({ kind: 'invalid' as const, ...problem })))
    this.warnings = warnings
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
    return this.#tokens(name, parseGitTokens, token => [token, basicCredentials(token)])
  }

  /** Reads lines `slug=key`, as `parseSlugKeys` does, and masks each key. */
  slugKeys(name: string): SlugKeys {
    return this.#tokens(name, parseSlugKeys, key => [key])
  }

  /** Masks what each line has after `=`, even if the line is refused. */
  #tokens(
    name: string,
    parse: (text: string) => ParsedTokens,
    formsOf: (token: string) => string[],
  ): ReadonlyMap<string, string> {
    const text = takeRaw(name)
    for (const secret of text.split(/\r\n|\r|\n/).map(line => line.slice(line.indexOf('=') + 1).trim()))
      if (secret !== '') this.#mask(formsOf(secret))
    const { tokens, problems } = parse(text)
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

  /**
   * Like `file`, for a file that says what to do on a host. Refuses a file whose real path lies below `project-root`.
   */
  hostFile(name: string, maxBytes: number): SourceFile | undefined {
    return this.#readOutsideRoot(take(name), maxBytes)
  }

  /** Like `hostFile`, for an input that lists paths, one per line. Reads a path that is listed twice only once. */
  hostFiles(name: string, maxBytes: number): SourceFile[] {
    const lines = takeRaw(name).split(/\r\n|\r|\n/)
    const paths = new Set(lines.map(line => line.trim()).filter(path => path !== ''))
    return [...paths].flatMap(text => this.#readOutsideRoot({ name, text }, maxBytes) ?? [])
  }

  /** True if the input was read and has a problem. */
  isRefused(name: string): boolean {
    return this.problems.some(({ input }) => input === name)
  }

  /** Returns the secrets and problems. Call this method after all inputs have been read. */
  given(): GivenInputs {
    const { secrets, settingValues, problems, warnings } = this
    return { secrets, settingValues, problems, warnings }
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

  #readOutsideRoot(input: TakenInput, maxBytes: number): SourceFile | undefined {
    const file = this.#read(input, maxBytes)
    const root = this.#projectRoot
    if (file === undefined || root === undefined) return file
    if (!leadsIntoRoot(resolve(this.#workspace, file.path), root)) return file
    this.refuse(
      input.name,
      `names ${file.path}, which lies below project-root, where services and publishers may write: keep it in the repository, or in a directory such as /etc/hub-deploy`,
    )
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

/**
 * Returns the start of one of the operator's files as text. Reads up to one byte more than `maxBytes`, so that the
 * parser notices a file that is too large. Invalid UTF-8 becomes U+FFFD, which the parser reports. Never waits for the
 * other end of a pipe. Throws an Error for anything but a readable regular file. The error's message is a reason, which
 * can complete a sentence.
 */
export function readStart(path: string, maxBytes: number): string {
  try {
    return readBytes(openSync(path, constants.O_RDONLY | constants.O_NONBLOCK), maxBytes + 1)
  } catch (error) {
    throw new Error(reasonOf(error), { cause: error })
  }
}

/**
 * Like `readStart`, for a workspace whose content may come from someone else, such as the author of a pull request. A
 * path into the workspace must not lead through a symlink, which could point to any file on this machine. A path
 * outside the workspace is the operator's own.
 */
function readStartInside(workspace: string, path: string, maxBytes: number): string {
  const resolved = resolve(workspace, path)
  const inside = pathBelow(resolve(workspace), resolved)
  if (inside === undefined) return readStart(resolved, maxBytes)
  try {
    return readBytes(openBelowSync(workspace, inside), maxBytes + 1)
  } catch (error) {
    throw new Error(error instanceof NotReadable ? error.message : reasonOf(error), { cause: error })
  }
}

/**
 * True if the way to a file leads into the project root, by whatever name. What is there may come from a service or a
 * publisher, so no file that says what to run may be read from there. False if there is no root, or if it cannot be
 * examined, because no run can use such a root. Throws the system's error if the way cannot be examined.
 */
export function leadsIntoRoot(path: string, root: string): boolean {
  const there = tryToStat(root)
  if (there?.isDirectory() !== true) return false
  const { way, end } = walkPath(path)
  return [...way, ...(end === undefined ? [] : [end])].some(
    ({ stat }) => stat.ino === there.ino && stat.dev === there.dev,
  )
}

function tryToStat(path: string): Stats | undefined {
  try {
    return statSync(path)
  } catch {
    return undefined
  }
}

function reasonOf(error: unknown): string {
  switch (errnoOf(error)) {
    case 'ENOENT':
    case 'ENOTDIR':
      return 'there is no such file (a file of the repository needs a checkout step before this step)'
    case 'EISDIR':
      return 'it is a directory (name a file in it)'
    case 'EACCES':
    case 'EPERM':
      return "the runner's user is not allowed to read it"
    default:
      return error instanceof Error ? error.message : String(error)
  }
}

/** Reads up to `maxBytes` and closes the descriptor. */
function readBytes(fd: number, maxBytes: number): string {
  try {
    const stat = fstatSync(fd)
    if (!stat.isFile() && !stat.isDirectory()) throw new Error('it is not a regular file')
    const bytes = Buffer.alloc(maxBytes)
    let size = 0
    for (let count = -1; count !== 0 && size < maxBytes; size += count)
      count = readSync(fd, bytes, size, maxBytes - size, null)
    return bytes.subarray(0, size).toString('utf8')
  } finally {
    closeSync(fd)
  }
}

/** Leaves room for a part's name: the host records this URL and the name in one line of at most 2,000 characters. */
const MAX_BASE_URL_CHARS = 1800

const isBaseUrl = (text: string): boolean => {
  const url = URL.parse(text)
  return (
    url !== null &&
    (url.protocol === 'https:' || url.protocol === 'http:') &&
    url.username === '' &&
    url.password === '' &&
    url.search === '' &&
    url.hash === '' &&
    !/\p{Cc}/u.test(text)
  )
}

export const baseUrlSchema = z.pipe(
  z.string().check(
    z.refine(isBaseUrl, {
      error: 'must be an https URL without a user, password, query, fragment or control characters',
    }),
    z.maxLength(MAX_BASE_URL_CHARS, { error: `must be at most ${MAX_BASE_URL_CHARS} characters long` }),
  ),
  z.transform(text => text.replace(/\/+$/, '')),
)

/** A key that an HTTP header carries unchanged. */
export const apiKeySchema = z
  .string()
  .check(z.regex(/^\S+$/, { error: 'must be one word without white space or line breaks: check how it was stored' }))

export const booleanSchema = z.pipe(
  z.string().check(z.regex(/^(true|false)$/i, { error: 'must be true or false' })),
  z.transform(text => text.toLowerCase() === 'true'),
)

export function integerSchema(least: number, most: number) {
  const error = { error: `must be a whole number from ${least} to ${most}` }
  return z
    .pipe(z.string().check(z.regex(/^\d{1,16}$/, error)), z.transform(Number))
    .check(z.refine(value => value >= least && value <= most, error))
}

/** A named version; `latest` does not count as one. */
export const exactVersionSchema = versionSchema.check(
  z.refine(version => version !== 'latest', { error: 'must be a version other than latest' }),
)

/** A number of hours, which need not be whole. */
export const hoursSchema = z.pipe(z.string(), z.transform(Number)).check(
  z.refine(hours => hours > 0 && hours <= 87_600, {
    error: 'must be a number of hours greater than 0 and at most 87600',
  }),
)

export const minutesSchema = z.pipe(z.string(), z.transform(Number)).check(
  z.refine(value => value > 0 && value <= 1440, {
    error: 'must be a number of minutes greater than 0 and at most 1440',
  }),
)

export const projectRootSchema = z
  .pipe(
    z.string().check(
      z.regex(/^[^\p{Cc}\p{Zl}\p{Zp}]*$/u, { error: 'must be one line without control characters' }),
      z.refine(path => isAbsolute(path), {
        error: 'must be an absolute path, because installed files do not belong in the workspace',
      }),
    ),
    z.transform(path => normalize(path).replace(/(?<=.)\/+$/, '')),
  )
  .check(
    z.refine(path => Buffer.byteLength(path) <= MAX_PROJECT_ROOT_BYTES, {
      error: `must be at most ${MAX_PROJECT_ROOT_BYTES} bytes long, because the system limits the paths below it`,
    }),
    z.refine(path => path !== '/', {
      error: "must not be the file system's root: name the directory that contains plugins/ and extensions/",
    }),
  )

/**
 * Items, one per line or separated by commas. Refuses a JSON list, whose brackets and quotes would become parts of
 * names.
 */
const itemsSchema = z.pipe(
  z.string().check(
    z.regex(/^(?!\s*\[\s*["'])/, {
      error: 'must list items one per line or separated by commas, without brackets or quotes around them',
    }),
  ),
  z.transform(text =>
    text
      .split(/[,\r\n]/)
      .map(item => item.trim())
      .filter(item => item !== ''),
  ),
)

/** A list of at least one id. */
export const idsSchema = z.pipe(
  itemsSchema,
  z
    .array(idSchema)
    .check(z.minLength(1, { error: 'must list ids of plugins and extensions, one per line or separated by commas' })),
)

/** A list of at least one host, without duplicates. */
export const hostIdsSchema = z.pipe(
  z.pipe(
    itemsSchema,
    z.transform(items => [...new Set(items)]),
  ),
  z.array(hostIdSchema).check(z.minLength(1, { error: 'must list hosts, one per line or separated by commas' })),
)

/** A list of paths inside an installed directory, without a leading `./` and final slashes. */
export const keepPathsSchema = z
  .pipe(
    z.pipe(
      z.string(),
      z.transform(text => text.split(/[,\r\n]/).map(item => item.trim())),
    ),
    z.transform(items =>
      items.filter(item => item !== '').map(item => item.replace(/^(?:\.\/+)+(?=.)|(?<=[^/])\/+$/g, '')),
    ),
  )
  .check(context => {
    for (const path of context.value) {
      const problem = keepPathProblem(path)
      if (problem === undefined) continue
      const message = `must list literal relative paths inside the installed directory, one per line or separated by commas; the entry ${JSON.stringify(path)} ${problem}`
      context.issues.push({ code: 'custom', message, input: context.value })
      return
    }
  })
