import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { recoverHost } from '../install/deployment/session.ts'
import { layoutOf } from '../install/host/layout.ts'
import type { ClosedDeployment } from '../install/reports/close.ts'
import { reportTimeout } from '../install/reports/report-timeout.ts'
import { senderFor } from './refuse.ts'
import type { IncompleteRequest } from './request.ts'

export type FinishTools = Pick<DeploymentTools, 'reportWire' | 'log' | 'redact'> & { runUrl: string | null }

/** Recovers the host of a run that was killed; undefined when it left nothing. Throws as recoverHost does. */
export async function finishInterrupted(
  request: IncompleteRequest,
  tools: FinishTools,
): Promise<ClosedDeployment | undefined> {
  if (request.projectRoot === undefined) return undefined
  const { log, redact, runUrl } = tools
  const sender = senderFor(request, tools)
  return recoverHost(
    { layout: layoutOf(request.projectRoot), log, redact, sender, reportTimeoutMs: reportTimeout() },
    runUrl,
  )
}
