import { type SpawnSyncReturns, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join, resolve } from 'node:path'
import { after } from 'node:test'

export const RECOVER = join(resolve(import.meta.dirname, '../../..'), 'dist/recover.js')

/** Runs `dist/recover.js` as the system does at boot: with PATH as the only environment variable. */
export function runRecover(args: readonly string[], path = process.env['PATH']): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, [RECOVER, ...args], { encoding: 'utf8', cwd: '/', env: { PATH: path } })
}

/** A folder that only root and this user can change, unlike every folder below /tmp. Removed after all tests. */
export function openSafeFolder(): string {
  const folder = mkdtempSync(join(homedir(), '.hub-deploy-test-'))
  after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Writes a host config that `recover.js` accepts, and returns its path. */
export function writeSafeHostConfig(folder: string, text: string): string {
  const path = join(folder, 'host-config.yaml')
  writeFileSync(path, text, { mode: 0o600 })
  return path
}
