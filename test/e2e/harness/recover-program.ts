import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { join, resolve } from 'node:path'

export const RECOVER = join(resolve(import.meta.dirname, '../../..'), 'dist/recover.js')

/** Runs `dist/recover.js` as the system does at boot: with PATH as the only environment variable. */
export function runRecover(args: readonly string[], path = process.env['PATH']): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, [RECOVER, ...args], { encoding: 'utf8', cwd: '/', env: { PATH: path } })
}
