import { UsageError } from '../errors.ts'

const USUAL_NAME = /^[A-Z_][A-Z0-9_]*$/

/** An option that names the environment variable with a secret. */
export interface SecretVariable {
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
