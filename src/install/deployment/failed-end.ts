import type { DeployError } from '../../core/errors.ts'
import { buildEnd, type DeploymentEnd } from '../transaction/end.ts'
import type { RunningDeployment } from './deployment.ts'

/**
 * Builds the end of a run that left nothing on the host. It is `inconsistent` if an earlier run may have left the host
 * neither old nor new.
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
