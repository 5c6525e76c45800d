import { toDeployError } from '../../../core/errors.ts'
import { monotonicMs } from '../../../core/monotonic.ts'
import { holdHostRecord, releaseHostRecord } from '../../host/installed/host-record.ts'
import { describeOther, type HeldLock } from '../../host/locks/lock.ts'
import { requireSafeHost } from '../../host/ownership/ownership.ts'
import { sendOutbox } from '../../reports/outbox.ts'
import type { RunningDeployment } from '../deployment.ts'
import { holdLock } from '../recovery/hold-lock.ts'
import { recover } from '../recovery/recovery.ts'

/**
 * The lock of one deployment on its host. The deployment may take the lock twice: once before the fetch, if the survey
 * needs the lock, and once to install.
 */
export class HostLock {
  readonly #deployment: RunningDeployment
  #held: HeldLock | undefined
  #hasSent = false

  constructor(deployment: RunningDeployment) {
    this.#deployment = deployment
  }

  /**
   * Takes the lock and recovers what a dead run left. The first time, also sends the reports that wait in the outbox.
   * After this call, anything that was read from the host earlier may be out of date. The host's record is read once,
   * and used until `release`. If the deployment has left the state `pending`, records how long the run waited for
   * another run. Throws as `holdLock`, `requireSafeHost`, `recover` and `holdHostRecord` do. In that case, the lock may
   * be held.
   */
  async take(timeoutMs: number): Promise<void> {
    const { host, tools } = this.#deployment
    this.#held = await this.#acquire(timeoutMs)
    this.#deployment.isLocked = true
    // The wait for the lock may have been long.
    requireSafeHost(host)
    tools.observer.onBegun(this.#deployment.noteRunning())
    await recover(host)
    const { sender } = host
    if (sender !== undefined && !this.#hasSent) await sendOutbox({ ...host, sender, signal: tools.signal })
    this.#hasSent = true
    holdHostRecord(host.layout)
    // An earlier run may have been recovered meanwhile.
    this.#deployment.noteRunning()
  }

  release(): void {
    this.#deployment.isLocked = false
    releaseHostRecord(this.#deployment.layout)
    this.#held?.release()
    this.#held = undefined
  }

  async #acquire(timeoutMs: number): Promise<HeldLock> {
    const { host, tools, state, record } = this.#deployment
    const { slug, id, version, requested_version: requested } = record.facts
    const names = [slug ?? id, version ?? requested].filter(name => name !== null)
    const deployment = names.length === 0 ? undefined : names.join(' ')
    const isAfterState = state !== 'pending'
    const started = monotonicMs()
    let other: string | undefined
    // Without its own group, the wait would look like a slow or failed state.
    const group = (): void => {
      if (isAfterState && other === undefined) tools.log.group('waiting for the host', 'at once')
      other ??= describeOther(host.layout.lock)
    }
    const log = (line: string): void => {
      group()
      tools.log.info(line)
    }
    try {
      return await holdLock(host, timeoutMs, { signal: tools.signal, log, deployment })
    } catch (error) {
      if (toDeployError(error).code === 'locked') group()
      throw error
    } finally {
      if (isAfterState && other !== undefined)
        await record.update({ waited: { state, duration_ms: Math.round(monotonicMs() - started), for: other } })
    }
  }
}
