import * as core from '@actions/core'
import type { z } from 'zod'
import { ConfigError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'

export interface InputProblem {
  kind: 'missing' | 'invalid'
  message: string
}

/** Reads inputs one by one and collects what is wrong with them, so that all of it is told at once. */
export interface InputReader {
  readonly problems: readonly InputProblem[]
  /** An input that must be given. Undefined, and a problem, when it is missing or malformed. */
  required<T>(name: string, schema: z.ZodType<T, string>): T | undefined
  /** An input that may be left out; an empty one counts as left out. */
  optional<T>(name: string, schema: z.ZodType<T, string>): T | undefined
  /** As `required` and `optional`, for secrets: masked in the log as soon as they are read, and never quoted. */
  requiredSecret(name: string): string | undefined
  optionalSecret(name: string): string | undefined
  refuse(name: string, what: string): void
}

export function createInputReader(): InputReader {
  const problems: InputProblem[] = []
  const refuse = (name: string, what: string): void => {
    problems.push({ kind: 'invalid', message: `${name} ${what}` })
  }
  const parse = <T>(name: string, text: string, schema: z.ZodType<T, string>): T | undefined => {
    const parsed = schema.safeParse(text)
    if (parsed.success) return parsed.data
    refuse(name, `${parsed.error.issues[0]?.message ?? 'is malformed'}, found "${cleanForeignText(text, 100)}"`)
    return undefined
  }
  const present = (name: string): string | undefined => {
    const text = take(name)
    if (text === undefined) problems.push({ kind: 'missing', message: `${name} is required and was not given` })
    return text
  }
  return {
    problems,
    refuse,
    required(name, schema) {
      const text = present(name)
      return text === undefined ? undefined : parse(name, text, schema)
    },
    optional(name, schema) {
      const text = take(name)
      return text === undefined ? undefined : parse(name, text, schema)
    },
    requiredSecret: name => masked(present(name)),
    optionalSecret: name => masked(take(name)),
  }
}

/** All problems as one error: `missing_input` when something is missing, else `invalid_input`. */
export function inputError(problems: readonly InputProblem[]): ConfigError {
  const code = problems.some(problem => problem.kind === 'missing') ? 'missing_input' : 'invalid_input'
  return new ConfigError(code, `${problems.map(problem => problem.message).join('; ')}. Correct the step's "with:".`)
}

/** Reads an input and removes it from the environment, which children inherit. */
function take(name: string): string | undefined {
  const text = core.getInput(name)
  delete process.env[`INPUT_${name.toUpperCase()}`]
  return text === '' ? undefined : text
}

function masked(secret: string | undefined): string | undefined {
  if (secret === undefined) return undefined
  for (const part of new Set([secret, ...secret.split(/\r?\n/)])) if (part.trim() !== '') core.setSecret(part)
  return secret
}
