import { HubError } from '../errors.ts'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/**
 * Runs work that takes a while and cleans up after itself. A signal that would end the process aborts the work. If the
 * work then throws, this function throws HubError 500 with the consequence, such as `no backup was written`.
 */
export async function interruptible<T>(consequence: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const interruption = new AbortController()
  const interrupt = () => interruption.abort()
  for (const signal of SIGNALS) process.on(signal, interrupt)
  try {
    return await work(interruption.signal)
  } catch (error) {
    throw interruption.signal.aborted ? new HubError(500, `Interrupted: ${consequence}.`) : error
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt)
  }
}
