import { join } from 'node:path'
import { listNames } from '../core/foreign-text.ts'
import { compareRecorded } from '../install/host/drift.ts'
import { isModified } from '../install/host/drift-check.ts'
import { placeName, snapshotsPath } from '../install/host/layout.ts'
import type { TreeDifference } from '../install/host/tree-comparison.ts'
import { identityOf } from '../install/host/tree-record.ts'
import { TreeRecordDamage } from '../install/host/tree-record-damage.ts'
import type { RetainedPart } from '../install/steps/part.ts'
import type { RunningRollback } from './deployment.ts'
import { modifiedSnapshot, unrecorded } from './refusals.ts'
import type { Target } from './target.ts'

/**
 * Compares each snapshot that is to be restored with its record, by content. Throws DeploymentError `snapshot_modified`
 * when a file differs, or nothing can be compared.
 */
export async function verifySnapshots(rollback: RunningRollback, { parts }: Target): Promise<void> {
  for (const part of parts) if (part.retained !== undefined) await verifySnapshot(rollback, part)
}

async function verifySnapshot(
  { layout, tools }: RunningRollback,
  part: Omit<RetainedPart, 'environment'>,
): Promise<void> {
  const { retained, keepPaths } = part
  const root = join(snapshotsPath(layout, part), retained.name)
  const tree = { root, keepPaths, identity: identityOf(retained) }
  const compared = compareRecorded(layout, tree, { byContent: true, signal: tools.signal })
  const difference = await compared.catch(error => {
    throw error instanceof TreeRecordDamage ? modifiedSnapshot(root, `its record is damaged: ${error.message}`) : error
  })
  if (difference === undefined) throw unrecorded(root)
  if (isModified(difference)) throw modifiedSnapshot(root, inWords(difference))
  const what = `${placeName(part)} ${part.version} (snapshot ${retained.name})`
  if (retained.modified)
    tools.log.warning(`${what} contains changes that were made on this host, and is restored with them.`)
  else tools.log.info(`${what} is as it was when it was installed.`)
}

function inWords({ changed, removed, added, instead }: TreeDifference): string {
  if (instead !== undefined) return `no directory, but ${instead}`
  const named = [
    changed.map(path => `${path} changed`),
    removed.map(path => `${path} removed`),
    added.map(path => `${path} added`),
  ]
  return listNames(named.flat())
}
