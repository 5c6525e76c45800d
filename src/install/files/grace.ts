import { setTimeout as startTimer } from 'node:timers'
import { ArtifactError, DeploymentError } from '../../core/errors.ts'

/**
 * The runner sends SIGTERM 7.5 s after its SIGINT. The work after a cancel ends within 6 s, or is left to the post
 * step.
 */
const MS_AFTER_CANCEL = { comparing: 2500, restoring: 3500, reporting: 5000 }

/** The limits for the work after a cancel. Without a cancel, none of these signals is ever aborted. */
export interface Grace {
  /** Aborted as soon as the run is cancelled: for work that can be done later. */
  readonly cancelled: AbortSignal
  /** For comparing restored files with their record. */
  readonly comparing: AbortSignal
  /** For restoring services. */
  readonly restoring: AbortSignal
  /** For the reports to the hub. */
  readonly reporting: AbortSignal
}

export function startGrace(cancelled: AbortSignal, times: typeof MS_AFTER_CANCEL = MS_AFTER_CANCEL): Grace {
  const late = new DeploymentError('cancelled', 'The run was cancelled, and no time was left for this work.')
  const unanswered = new ArtifactError('timeout', 'The hub did not answer within the time that a cancelled run has.')
  return {
    cancelled,
    comparing: abortLater(cancelled, times.comparing, late),
    restoring: abortLater(cancelled, times.restoring, late),
    reporting: abortLater(cancelled, times.reporting, unanswered),
  }
}

/** Returns the limits of a run that nobody can cancel. */
export function endlessGrace(): Grace {
  return startGrace(new AbortController().signal)
}

function abortLater(cancelled: AbortSignal, ms: number, reason: Error): AbortSignal {
  const controller = new AbortController()
  // Not referenced: the timer must not keep alive a process that has ended its work.
  const start = (): void => void startTimer(() => controller.abort(reason), ms).unref()
  if (cancelled.aborted) start()
  else cancelled.addEventListener('abort', start, { once: true })
  return controller.signal
}
