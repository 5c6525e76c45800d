import * as core from '@actions/core'
import type { z } from 'zod/mini'
import { ConfigError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'

export interface InputProblem {
  kind: 'missing' | 'invalid'
  message: string
}

/** Reads inputs one by one and collects what is wrong with them, so that all of it is told at once. */
export interface InputReader {
  readonly problems: readonly InputProblem[]
  /** Every secret that was read, the malformed ones too. */
  readonly secrets: readonly string[]
  /** An input that must be given. Undefined, and a problem, when it is missing or malformed. */
  required<T>(name: string, schema: z.ZodMiniType<T, string>): T | undefined
  /** An input that may be left out; an empty one counts as left out. */
  optional<T>(name: string, schema: z.ZodMiniType<T, string>): T | undefined
  /** The same with a default for one that is left out. A malformed one stays undefined: nobody asked for the default. */
  withDefault<T>(name: string, schema: z.ZodMiniType<T, string>, fallback: T): T | undefined
  /**
   * As `required` and `optional`, for secrets: masked in the log as soon as they are read, and never quoted. Taken as
   * they are, white space included, but for one line break at the end.
   */
  requiredSecret(name: string, schema?: z.ZodMiniType<string, string>): string | undefined
  optionalSecret(name: string): string | undefined
  refuse(name: string, what: string): void
}

export function createInputReader(): InputReader {
  const problems: InputProblem[] = []
  const secrets: string[] = []
  const refuse = (name: string, what: string): void => {
    problems.push({ kind: 'invalid', message: `${name} ${what}` })
  }
  const parse = <T>(name: string, text: string, schema: z.ZodMiniType<T, string>): T | undefined => {
    const parsed = schema.safeParse(text)
    if (parsed.success) return parsed.data
    refuse(
      name,
      `${parsed.error.issues[0]?.message ?? 'is malformed'}, found "${cleanForeignText(withoutUserinfo(text), 100)}"`,
    )
    return undefined
  }
  const present = (name: string, text: string | undefined, found = 'was not given'): string | undefined => {
    if (text === undefined) problems.push({ kind: 'missing', message: `${name} is required and ${found}` })
    return text
  }
  const takeSecret = (name: string): string | undefined => {
    const secret = takeExactly(name)
    if (secret !== undefined) secrets.push(secret)
    return masked(secret)
  }
  return {
    problems,
    secrets,
    refuse,
    required(name, schema) {
      const text = present(name, take(name))
      return text === undefined ? undefined : parse(name, text, schema)
    },
    optional(name, schema) {
      const text = take(name)
      return text === undefined ? undefined : parse(name, text, schema)
    },
    withDefault(name, schema, fallback) {
      const text = take(name)
      return text === undefined ? fallback : parse(name, text, schema)
    },
    requiredSecret(name, schema) {
      const secret = present(name, takeSecret(name), EMPTY_SECRET)
      const parsed = secret === undefined ? undefined : schema?.safeParse(secret)
      if (parsed === undefined || parsed.success) return secret
      refuse(name, parsed.error.issues[0]?.message ?? 'is malformed')
      return undefined
    },
    optionalSecret: takeSecret,
  }
}

/** The runner gives an empty text for a secret that does not exist, or that this run may not read. */
const EMPTY_SECRET = 'is empty (is the secret defined in this repository or environment?)'

/** All problems as one error: `missing_input` when something is missing, else `invalid_input`. */
export function inputError(problems: readonly InputProblem[]): ConfigError {
  const code = problems.some(problem => problem.kind === 'missing') ? 'missing_input' : 'invalid_input'
  return new ConfigError(code, `${problems.map(problem => problem.message).join('; ')}. Correct the step's "with:".`)
}

function take(name: string): string | undefined {
  return takeRaw(name).trim() || undefined
}

/** An editor or a shell ends a text with one line break; every other character may belong to the secret. */
function takeExactly(name: string): string | undefined {
  const text = takeRaw(name)
  return text.trim() === '' ? undefined : text.replace(/\r?\n$/, '')
}

/** Reads an input and removes it from the environment, which children inherit. */
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

/** A URL may carry a password by mistake, which must not be told any further. */
function withoutUserinfo(text: string): string {
  return text.replace(/\/\/[^/@\s]*@/g, '//***@')
}
