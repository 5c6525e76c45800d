import { join } from 'node:path'
import { loadBundle } from './bundle.ts'
import { cacheFolder } from './cache-folder.ts'
import { CompiledCode } from './compiled-code.ts'

/**
 * V8 drops compiled code that several full garbage collections have found unused. A run that has used less processor
 * time than this, in microseconds, has not had that many collections.
 */
const MAX_PROCESSOR_TIME = 1_000_000

/**
 * Runs an action of the bundle in `folder`. Uses the code that earlier runs compiled, if that code can be trusted.
 * After a run that changed the host, the code that the run needed is kept for later runs.
 */
export function start(folder: string, action: string): Promise<void> {
  const release = holdCancel()
  const compiled = new CompiledCode(cacheFolder(process.env))
  const { exports, compile } = loadBundle(join(folder, 'index.js'), compiled)
  const run = exports[action]
  if (run === undefined) throw new Error(`The bundle has no action ${action}.`)
  const ended = run(kind => compiled.keep(isShort() ? `${action}: ${kind}` : undefined, compile))
  release()
  return ended
}

/**
 * Makes sure that the action sees a cancel that arrives while the bundle is loaded. The signal waits until the event
 * loop turns, and the action begins to listen before its first `await`. Without a listener, the signal would end the
 * process without a result.
 */
function holdCancel(): () => void {
  const hold = (): void => {}
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, hold)
  return () => {
    for (const signal of ['SIGINT', 'SIGTERM']) process.off(signal, hold)
  }
}

function isShort(): boolean {
  const { user, system } = process.cpuUsage()
  return user + system < MAX_PROCESSOR_TIME
}
