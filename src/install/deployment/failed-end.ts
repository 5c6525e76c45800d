import type { DeployError } from '../../core/errors.ts'
import { buildEnd, type DeploymentEnd } from '../transaction/end.ts'
import type { RunningDeployment } from './deployment.ts'

/**
 * Builds the end of a run that failed; the caller adds the result of a rollback. The outcome is `inconsistent` if the
 * error has that code, because an earlier run may have left the host with neither version intact. Otherwise, the
 * outcome is `failed`.
 */
export function failedEnd(
  { record, tools }: Pick<RunningDeployment, 'record' | 'tools'>,
  { code, message }: DeployError,
): DeploymentEnd {
  const step = record.steps.find(({ status }) => status === 'failed')?.id ?? null
  const outcome = code === 'inconsistent' ? code : 'failed'
  const sentence = step === null ? message : `${step}: ${message}`
  return buildEnd(tools.now(), { outcome, error: { code, message: sentence, step } })
}
