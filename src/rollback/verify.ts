import { join } from 'node:path'
import { listNames } from '../core/foreign-text.ts'
import { isBelow } from '../core/is-below.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { placeName, snapshotsPath } from '../install/host/layout.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import { isGenuine } from '../install/host/snapshots.ts'
import { compareRecorded } from '../install/host/trees/drift.ts'
import { isModified } from '../install/host/trees/drift-check.ts'
import { identityOf } from '../install/host/trees/record/tree-identity.ts'
import { TreeRecordDamage } from '../install/host/trees/record/tree-record-damage.ts'
import type { TreeDifference } from '../install/host/trees/tree-comparison.ts'
import type { RetainedPart } from '../install/steps/parts/part.ts'
import { INSTEAD_WORDS } from '../install/transaction/drift-names.ts'
import type { RunningRollback } from './deployment.ts'
import { damagedRecord, modifiedSnapshot, otherVersion, unrecorded } from './refusals.ts'
import type { Target } from './target/target-part.ts'

const PLUGIN_YAML = 'plugin.yaml'

/**
 * Compares the content of each snapshot to restore with its record. Throws DeploymentError `snapshot_modified` if a
 * file differs or there is no usable record, and `inconsistent` if a row names a different version than the files.
 */
export async function verifySnapshots(rollback: RunningRollback, { parts }: Target): Promise<void> {
  for (const part of parts) if (part.retained !== undefined) await verifySnapshot(rollback, part)
  for (const part of parts) if (part.retained !== undefined) verifyVersion(rollback, part)
}

type Restored = Omit<RetainedPart, 'environment'>

/**
 * Compares the recorded version of a plugin with its plugin.yaml. Skips a part of a project, because the manifest may
 * give it another version. Also skips a snapshot or plugin.yaml that may have been changed on the host.
 */
function verifyVersion({ layout, request }: RunningRollback, part: Restored): void {
  const isOwn = part.shelf === 'plugins' && request.subject.contract === 'marketplace' && isGenuine(part.retained)
  if (!isOwn || isBelow(part.keepPaths)(PLUGIN_YAML)) return
  const root = join(snapshotsPath(layout, part), part.retained.name)
  const { version } = readPluginYaml(root)
  if (version !== undefined && !isSameVersion(version, part.version))
    throw otherVersion(layout.installed, { root, recorded: part.version, found: version })
}

async function verifySnapshot({ layout, tools }: RunningRollback, part: Restored): Promise<void> {
  const { retained, keepPaths } = part
  const root = join(snapshotsPath(layout, part), retained.name)
  const tree = { root, keepPaths, identity: identityOf(retained) }
  const compared = compareRecorded(layout, tree, { byContent: true, signal: tools.signal })
  const difference = await compared.catch(error => {
    throw error instanceof TreeRecordDamage ? damagedRecord(root, error.message) : error
  })
  if (difference === undefined) throw unrecorded(root)
  if (isModified(difference)) throw modifiedSnapshot(root, inWords(difference))
  const restored = `${placeName(part)} ${part.version}`
  if (retained.modified)
    tools.log.warning(`${restored} contains changes that were made on this host, and is restored with them.`)
  else tools.log.did(`${restored} as it was installed`)
}

function inWords({ changed, removed, added, instead }: TreeDifference): string {
  if (instead !== undefined) return INSTEAD_WORDS[instead]
  const named = [
    changed.map(path => `${path} changed`),
    removed.map(path => `${path} removed`),
    added.map(path => `${path} added`),
  ]
  return listNames(named.flat())
}
