import type { DeployOutcome } from '../runner/deployment-tools.ts'
import { buildDeployOutputs } from './deploy-outputs.ts'

export interface ProjectOutcome extends DeployOutcome {
  /** What failed though the outcome is success: the hub's refusal of the report. */
  error?: { code: string } | undefined
}

/** The outputs of project/action.yml, all of them, always; what is not known is empty. */
export function buildProjectOutputs(outcome: ProjectOutcome): Record<string, string> {
  const { report, error } = outcome
  return {
    ...buildDeployOutputs(outcome),
    'error-code': report.error?.code ?? error?.code ?? '',
    'project-id': report.slug ?? '',
    plugins: JSON.stringify(report.plugins ?? []),
  }
}
