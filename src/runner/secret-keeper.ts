import * as core from '@actions/core'
import { createRedactor } from '../core/text.ts'
import type { SecretKeeper } from '../install/transaction/record.ts'
import type { GivenInputs } from './inputs.ts'

/** The secrets that a step was given. */
export type GivenSecrets = Pick<GivenInputs, 'secrets' | 'settingValues'>

/**
 * Keeps the step's secrets, and those learned from a hub during the run, out of every log line, file and output. A hub
 * chooses its own secrets, so a hub's secret is not redacted if it is part of a fact that the run knows. Otherwise, a
 * hub could remove a version, a digest or a host from the run's messages. The same exception applies to the values of
 * settings.
 */
export function createSecretKeeper({ secrets, settingValues }: GivenSecrets): SecretKeeper {
  const redactGiven = createRedactor(secrets)
  const doubtful = [...settingValues]
  const known = new Set<string>()
  const isKnown = (secret: string): boolean => [...known].some(text => text.includes(secret.trim()))
  const redactorOfDoubtful = () => createRedactor(doubtful.filter(secret => !isKnown(secret)))
  let redactDoubtful = redactorOfDoubtful()
  return {
    redact: text => redactDoubtful(redactGiven(text)),
    hide(secret) {
      if (!isKnown(secret)) core.setSecret(secret)
      doubtful.push(secret)
      redactDoubtful = redactorOfDoubtful()
    },
    know(facts) {
      for (const text of textsIn(facts)) known.add(text)
      redactDoubtful = redactorOfDoubtful()
    },
  }
}

function textsIn(value: unknown): string[] {
  if (typeof value === 'string') return value === '' ? [] : [value]
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(textsIn) : []
}
