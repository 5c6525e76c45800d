import type { ClosedDeployment } from '../install/close-deployment.ts'
import type { DeploymentTools } from '../install/deployment-run.ts'
import { recoverHost } from '../install/host-session.ts'
import { layoutOf } from '../install/layout.ts'
import { reportTimeout } from '../install/report-timeout.ts'
import type { IncompleteProjectRequest } from './deploy-request.ts'
import { senderFor } from './refuse.ts'

export type FinishTools = Pick<DeploymentTools, 'reportWire' | 'log' | 'redact' | 'hide'> & { runUrl: string | null }

/** Recovers the host of a run that was killed; undefined when it left nothing. Throws as recoverHost does. */
export async function finishInterrupted(
  request: IncompleteProjectRequest,
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
