import { join } from 'node:path'

/** Which of the two directories of a project root something is installed in. */
export type Shelf = 'plugins' | 'extensions'

/** Where one plugin or extension is installed. */
export interface Place {
  readonly shelf: Shelf
  readonly id: string
}

/** The paths below a project root, all absolute. What is under `.hub-deploy/` is ours alone. */
export interface Layout {
  readonly root: string
  readonly own: string
  readonly lock: string
  readonly journal: string
  readonly installed: string
  readonly staging: string
  readonly snapshots: string
  readonly trees: string
  readonly reports: string
  readonly outbox: string
  readonly audit: string
  readonly reserve: string
}

export function layoutOf(projectRoot: string): Layout {
  const own = join(projectRoot, '.hub-deploy')
  return {
    root: projectRoot,
    own,
    lock: join(own, 'lock'),
    journal: join(own, 'journal.jsonl'),
    installed: join(own, 'installed.json'),
    staging: join(own, 'staging'),
    snapshots: join(own, 'snapshots'),
    trees: join(own, 'trees'),
    reports: join(own, 'reports'),
    outbox: join(own, 'outbox'),
    audit: join(own, 'audit.jsonl'),
    reserve: join(own, 'reserve'),
  }
}

export function installPath(layout: Layout, shelf: Shelf, id: string): string {
  return join(layout.root, shelf, id)
}

/** Host-side settings of a plugin, beside its directory so that no deployment replaces them. */
export function settingsPath(layout: Layout, shelf: Shelf, id: string): string {
  return join(layout.root, shelf, `${id}.env`)
}

export function stagingPath(layout: Layout, deploymentId: string): string {
  return join(layout.staging, deploymentId)
}

export function snapshotsPath(layout: Layout, shelf: Shelf, id: string): string {
  return join(layout.snapshots, shelf, id)
}

export function treeRecordPath(layout: Layout, treeDigest: string): string {
  return join(layout.trees, `${treeDigest}.json`)
}
