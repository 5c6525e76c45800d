import { join } from 'node:path'
import { loadBundle } from './bundle.ts'
import { cacheFolder } from './cache-folder.ts'
import { CompiledCode } from './compiled-code.ts'

/**
 * Runs an action of the bundle in `folder`, with the code that an earlier run compiled if it can be trusted. Once the
 * action has installed something, the code that it needed is compiled and kept for later runs.
 */
export function start(folder: string, action: string): Promise<void> {
  const compiled = new CompiledCode(cacheFolder(process.env))
  const { exports, compile } = loadBundle(join(folder, 'index.js'), compiled)
  const run = exports[action]
  if (run === undefined) throw new Error(`The bundle has no action ${action}.`)
  return run(() => compiled.keep(compile))
}
