import type { DeployError } from '../../core/errors.ts'
import { buildEnd, type DeploymentEnd } from '../transaction/end.ts'
import type { RunningDeployment } from './deployment.ts'

/** The end of a run that leaves nothing on the host. An earlier one may have left it neither old nor new. */
export function failedEnd(
  { record, tools }: Pick<RunningDeployment, 'record' | 'tools'>,
  { code, message }: DeployError,
): DeploymentEnd {
  const step = record.steps.find(({ status }) => status === 'failed')?.id ?? null
  const outcome = code === 'inconsistent' ? code : 'failed'
  const sentence = step === null ? message : `${step}: ${message}`
  return buildEnd(tools.now(), { outcome, error: { code, message: sentence, step } })
}
