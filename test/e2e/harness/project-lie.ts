import assert from 'node:assert/strict'
import { it } from 'node:test'
import { commandsIn } from './evidence.ts'
import { assertRefusesProject, type ProjectRefusal } from './project-refusal.ts'
import { openProjectStage, type ProjectStage, projectFiles } from './project-stage.ts'
import type { SealedOffer } from './sealed-offer.ts'
import {
  answersOf,
  goodOffer,
  type ProjectAnswers,
  type ProjectRoute,
  serveUntrustedProjectHub,
} from './untrusted-project-hub.ts'

/**
 * The requests before the artifact is downloaded, before the artifact's key is requested, and before the artifact is
 * opened.
 */
export const TO_ARTIFACT: readonly ProjectRoute[] = ['auth', 'artifact']
export const TO_DOWNLOAD: readonly ProjectRoute[] = [...TO_ARTIFACT, 'download']
export const TO_KEY: readonly ProjectRoute[] = [...TO_DOWNLOAD, 'authorize']

/** A hub's offer or answers that must be refused, and the state and requests at which the run refuses them. */
export interface Lie extends Omit<ProjectRefusal, 'dek'> {
  /** The offer in place of a good project. */
  offer?: (stage: ProjectStage) => SealedOffer
  answers?: (stage: ProjectStage, offer: SealedOffer) => Partial<ProjectAnswers>
  /** A pattern that the error annotation must match; default any. */
  says?: RegExp
}

/** Opens a stage on whose host 1.0.0 is installed. */
export async function openDeployedStage(): Promise<ProjectStage> {
  const stage = await openProjectStage()
  await stage.publish('1.0.0', projectFiles('1.0.0'))
  const { exitCode, log } = await stage.deploy()
  assert.equal(exitCode, 0, log)
  return stage
}

/** Defines a test: the run refuses the lie in the expected state, and changes nothing. */
export function itRefuses(
  name: string,
  stageOf: () => ProjectStage,
  { offer = goodOffer, answers, says, ...refusal }: Lie,
): void {
  it(name, async t => {
    const stage = stageOf()
    const offered = offer(stage)
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, offered, answers?.(stage, offered)))
    const { log } = await assertRefusesProject(stage, hub, { ...refusal, dek: offered.dek })
    assert.match(commandsIn(log, 'error').join(), says ?? /./)
  })
}
