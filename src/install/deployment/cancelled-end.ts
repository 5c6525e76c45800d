import type { ClosedDeployment } from '../reports/close.ts'
import type { DeploymentTools } from './deployment.ts'

/**
 * Reports how a deployment ended; a cancelled run does not have the time that this may take. So its observer hears what
 * is known by then: as soon as the deployment is cancelled, or at once if it was before.
 */
export async function closeObserved(
  { signal, observer }: DeploymentTools,
  close: (onKnown: (known: ClosedDeployment) => void) => Promise<ClosedDeployment>,
): Promise<ClosedDeployment> {
  const untilClosed = new AbortController()
  try {
    return await close(known => {
      if (signal.aborted) observer.onCancelledEnd(known)
      signal.addEventListener('abort', () => observer.onCancelledEnd(known), { signal: untilClosed.signal })
    })
  } finally {
    untilClosed.abort()
  }
}
