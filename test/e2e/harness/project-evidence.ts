import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { listDeployments, type StoredProjectReport } from '../../../hub/project/reports.ts'
import type { InstalledRow } from '../../../src/install/host/installed/rows.ts'
import { assertNoSecret } from './invariants.ts'
import type { ProjectStage } from './project-stage.ts'

/** Every report that the hub has accepted, oldest first. */
export function acceptedProjectReports({ store }: Pick<ProjectStage, 'store'>): StoredProjectReport[] {
  return listDeployments(store, 100).reverse()
}

/** The rows of `installed.json` by kind and id, such as `plugin cart`, in the order of the file. */
export function installedRows({ root }: { readonly root: string }): Record<string, InstalledRow> {
  const { installed } = JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8'))
  return Object.fromEntries((installed as InstalledRow[]).map(row => [`${row.kind} ${row.id}`, row]))
}

/** The version that a file of each part names, in the order cart, till, mailer. */
export function runningParts({ root }: { readonly root: string }): string[] {
  return ['plugins/cart/src/main.py', 'plugins/till/src/main.py', 'extensions/mailer/run.sh'].map(
    path => /\d+\.\d+\.\d+/.exec(readFileSync(join(root, path), 'utf8'))?.[0] ?? '',
  )
}

/**
 * A key in the forms in which it could leak: base64 with and without padding, base64url, hex, and the bytes themselves.
 */
export function formsOf(key: Buffer): string[] {
  const base64 = key.toString('base64')
  return [base64, base64.replace(/=+$/, ''), key.toString('base64url'), key.toString('hex'), key.toString('latin1')]
}

/**
 * Asserts that no secret of the stage, no text in `more`, and no key in any of its forms has leaked. Searches the files
 * of the host and of the runner's temporary folder, and these logs without the commands that mask secrets.
 */
export function assertKeptSecret(
  stage: ProjectStage,
  logs: readonly string[],
  keys: readonly Buffer[],
  more: readonly string[] = [],
): void {
  const secrets = [stage.devkey, stage.credential, ...keys.flatMap(formsOf), ...more]
  assertNoSecret(secrets, [stage.root, stage.workspace.temp], logs)
}

/** Asserts that the runner's temporary folder contains only the runner's own command files. */
export function assertTemporariesGone({ workspace }: Pick<ProjectStage, 'workspace'>): void {
  const strays = readdirSync(workspace.temp).filter(name => !name.startsWith('commands-'))
  assert.deepEqual(strays, [])
}
