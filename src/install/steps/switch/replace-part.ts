import { join, relative } from 'node:path'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { installPath, placeName, placePath } from '../../host/layout.ts'
import { isModified } from '../../host/trees/drift-check.ts'
import type { TreeIdentity } from '../../host/trees/record/tree-identity.ts'
import { planSettingsMove } from '../settings/moved-settings.ts'
import type { StepContext } from '../step-context.ts'
import type { StepResult } from '../step-entry.ts'
import { keptMoves, prepareKeptPaths } from './kept-paths.ts'
import { announceModified, nextSnapshot } from './next-snapshot.ts'
import type { PlannedSwitch } from './planned-switch.ts'
import type { PreparedPart } from './prepare-parts.ts'
import { identifyReplaced } from './replaced-tree.ts'

/**
 * Plans how a prepared part takes its place. Makes the directory that will contain the part, and makes room in
 * the new tree for the kept paths. Throws DeploymentError `step_failed`, `unsafe_host` or `inconsistent`, or file
 * system errors.
 */
export async function planReplacement(context: StepContext, prepared: PreparedPart): Promise<PlannedSwitch> {
  const { deployment, results } = context
  const { layout } = deployment
  const { part, wasThere, recorded } = prepared
  const { place, version } = part.previous
  const old = installPath(layout, place)
  await makeDirectory(context, part.directory)
  const isThere = pathExistsSync(old)
  const leftBehind = wasThere ? undefined : part.leftBehind
  const keeper = isThere ? old : leftBehind
  const kept = keeper === undefined ? [] : await prepareKeptPaths(context, part, keeper)
  const snapshot = isThere ? await nextSnapshot(deployment, place, version) : undefined
  const settings = planSettingsMove(context, part)
  const into = { type: 'move', from: relative(layout.root, part.staged), to: placePath(part) } as const
  return {
    part,
    snapshot,
    async kept() {
      const from = snapshot?.path ?? leftBehind
      if (from === undefined) return []
      // The old version may have created kept paths since the first preparation.
      const late = snapshot === undefined ? [] : await prepareKeptPaths(context, part, from)
      return keptMoves(deployment, { from, to: part.staged }, [...new Set([...kept, ...late])])
    },
    into: () => [into, ...settings.moves],
    async finish() {
      const modified = snapshot && (await identifyReplaced(context, place, snapshot.path))
      results.set(placeName(part), { tree: recorded, snapshot: snapshot?.name, modified })
      if (snapshot !== undefined) await announceModified(deployment, place, snapshot)
      settings.announce()
      return await describe(context, prepared, modified)
    },
  }
}

async function describe(
  context: StepContext,
  prepared: PreparedPart,
  modified: TreeIdentity | undefined,
): Promise<StepResult> {
  const { layout, tools } = context.deployment
  const { part, recorded, change } = prepared
  const path = installPath(layout, part)
  if (modified !== undefined && part.previous.installed?.artifact_sha256 === part.artifactSha256)
    tools.log.notice(`${path} was repaired.`)
  tools.log.info(`${path} has the tree digest ${recorded.tree_digest}.`)
  await countEdited(context, prepared)
  const did = change.inWords()
  return { status: 'done', did, story: `${placePath(part)} is now ${part.version}, ${did}` }
}

/** Corrects the count of changes for files that were edited on this host, because these files were replaced, too. */
async function countEdited(
  { deployment }: StepContext,
  { part, change, recorded, wasThere }: PreparedPart,
): Promise<void> {
  const { previous } = part
  const drift = await deployment.drift.of(previous.place)
  if (!wasThere || previous.installed === undefined || !isModified(drift)) return
  try {
    await change.correct(drift, deployment.layout, { before: previous.installed, after: recorded })
  } catch {
    // A wrong count is no reason to fail a deployment.
  }
}

/** Creates the directory and its missing parents. A rollback removes those that are empty. */
async function makeDirectory({ deployment, transaction }: StepContext, directory: string): Promise<void> {
  const parts = directory.split('/')
  for (let depth = 1; depth <= parts.length; depth++) {
    const path = parts.slice(0, depth).join('/')
    if (!pathExistsSync(join(deployment.layout.root, path))) await transaction.apply([{ type: 'make_directory', path }])
  }
}
