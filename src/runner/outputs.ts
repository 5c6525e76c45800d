import type { KnownResult } from './action-step.ts'

/** Returns the outputs that every deploying action has. An unknown value is empty. */
export function buildDeploymentOutputs(
  { report, reportPath, error }: KnownResult,
  installPath: string | undefined,
): Record<string, string> {
  return {
    outcome: report.outcome,
    changed: String(report.changed),
    version: report.version ?? '',
    'previous-version': report.previous_version ?? '',
    'running-version': report.running_version ?? '',
    'artifact-sha256': report.artifact_sha256 ?? '',
    'deployment-id': report.deployment_id,
    'host-id': report.host_id,
    'install-path': installPath ?? '',
    'report-path': reportPath ?? '',
    reported: String(report.reported.accepted),
    'failed-step': report.error?.step ?? '',
    'error-code': report.error?.code ?? error?.code ?? '',
    state: report.state,
    'duration-ms': String(report.duration_ms),
  }
}
