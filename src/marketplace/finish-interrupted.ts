import type { ClosedDeployment, ClosingHost } from '../install/close-deployment.ts'
import { layoutOf } from '../install/layout.ts'
import { acquireLock } from '../install/lock.ts'
import { recover } from '../install/recovery.ts'
import { exists } from '../install/tree-walk.ts'
import type { DeployTools, IncompleteRequest } from './deploy-request.ts'
import { senderFor } from './refuse.ts'

/** A live holder is another run, which recovers by itself. */
const LOCK_TIMEOUT_MS = 5000

export type FinishTools = Pick<DeployTools, 'reportWire' | 'log' | 'redact'> & { runUrl: string | null }

/** Recovers the host of a run that was killed; undefined when it left nothing. */
export async function finishInterrupted(
  request: IncompleteRequest,
  tools: FinishTools,
): Promise<ClosedDeployment | undefined> {
  if (request.projectRoot === undefined) return undefined
  const { log, redact, runUrl } = tools
  const host: ClosingHost = { layout: layoutOf(request.projectRoot), log, redact, sender: senderFor(request, tools) }
  if (!(await exists(host.layout.journal))) return undefined
  const lock = await acquireLock({
    path: host.layout.lock,
    timeoutMs: LOCK_TIMEOUT_MS,
    runUrl,
    log: line => log.info(line),
  })
  try {
    return await recover(host)
  } finally {
    await lock.release()
  }
}
