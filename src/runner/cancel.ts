import { DeploymentError } from '../core/errors.ts'

/**
 * Listens for a cancel of the step. The runner sends SIGINT and, 7.5 s later, SIGTERM; the first signal cancels the
 * run.
 */
export function listenForCancel(): { signal: AbortSignal; stop(): void } {
  const controller = new AbortController()
  const cancel = (signal: NodeJS.Signals): void =>
    controller.abort(new DeploymentError('cancelled', `The run was cancelled (${signal}) before it was complete.`))
  process.on('SIGINT', cancel)
  process.on('SIGTERM', cancel)
  return {
    signal: controller.signal,
    stop() {
      process.off('SIGINT', cancel)
      process.off('SIGTERM', cancel)
    },
  }
}
