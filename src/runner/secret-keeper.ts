import * as core from '@actions/core'
import { createRedactor } from '../core/secrets.ts'

/** A hub that gives out words as tokens must not be able to blot them out of what a run says. */
const SHORTEST_HIDDEN = 8

/** What no log line, file or output may show; secrets that are learned on the way are added as soon as they are known. */
export interface SecretKeeper {
  redact(text: string): string
  hide(secret: string): void
}

export function keepSecrets(known: readonly string[]): SecretKeeper {
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
