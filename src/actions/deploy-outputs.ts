import type { DeployOutcome } from '../runner/deployment-tools.ts'

/** The outputs of action.yml, all of them, always; what is not known is empty. */
export function buildDeployOutputs({ report, reportPath, installPath }: DeployOutcome): Record<string, string> {
  return {
    outcome: report.outcome,
    changed: String(report.changed),
    version: report.version ?? '',
    'previous-version': report.previous_version ?? '',
    'artifact-sha256': report.artifact_sha256 ?? '',
    'deployment-id': report.deployment_id,
    'host-id': report.host_id,
    'install-path': installPath ?? '',
    'report-path': reportPath ?? '',
    reported: String(report.reported.accepted),
    'failed-step': report.error?.step ?? '',
    'error-code': report.error?.code ?? '',
    state: report.state,
    'duration-ms': String(report.duration_ms),
  }
}
