import * as core from '@actions/core'
import { createRedactor } from '../core/secrets.ts'
import type { SecretKeeper } from '../install/transaction/context.ts'

/** A hub that issues words as tokens must not be able to remove them from what a run says. */
const SHORTEST_HIDDEN = 8

/** Keeps these secrets, and those learned during the run, out of every log line, file and output. */
export function createSecretKeeper(known: readonly string[]): SecretKeeper {
  const secrets = [...known]
  let redact = createRedactor(secrets)
  return {
    redact: text => redact(text),
    hide(secret) {
      if (secret.length < SHORTEST_HIDDEN) return
      core.setSecret(secret)
      secrets.push(secret)
      redact = createRedactor(secrets)
    },
  }
}
