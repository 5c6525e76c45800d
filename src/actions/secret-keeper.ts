import * as core from '@actions/core'
import { createRedactor } from '../core/secrets.ts'

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
      core.setSecret(secret)
      secrets.push(secret)
      redact = createRedactor(secrets)
    },
  }
}
