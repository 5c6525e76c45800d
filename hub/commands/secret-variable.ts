import { UsageError } from '../errors.ts'

const USUAL_NAME = /^[A-Z_][A-Z0-9_]*$/

/** The environment variable with a secret that an option names. */
export interface SecretVariable {
  readonly option: string
  readonly variable: string
  /** The secret in messages. */
  readonly purpose: string
}

/**
 * Reads a secret. Throws UsageError if the variable is empty. That says the variable's name only if it looks like one,
 * because it may be the secret itself.
 */
export function readSecretVariable({ option, variable, purpose }: SecretVariable): string {
  const secret = process.env[variable]
  if (secret) return secret
  if (USUAL_NAME.test(variable))
    throw new UsageError(`The environment variable ${variable} is empty: set it to the ${purpose}.`)
  throw new UsageError(
    `The option --${option} names no environment variable that is set: give the name of the one with the ${purpose}, not the ${purpose} itself.`,
  )
}
