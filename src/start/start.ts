import { join } from 'node:path'
import { loadBundle } from './bundle.ts'
import { cacheFolder } from './cache-folder.ts'
import { CompiledCode } from './compiled-code.ts'

/**
 * V8 drops compiled code that several full collections of garbage have found unused. A run that has used less processor
 * time, in microseconds, has not had as many.
 */
const MAX_PROCESSOR_TIME = 1_000_000

/**
 * Runs an action of the bundle in `folder`, with the code that earlier runs compiled if it can be trusted. Once the
 * action has installed something, the code that it needed is kept for later runs.
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
 * Lets a cancel that comes while the bundle is loaded reach the action, which begins to listen before its first await:
 * until the event loop turns, the signal waits. Without a listener, it would end the process without a result.
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
