import { join } from 'node:path'

/** Which of the two directories of a project root a plugin or extension is installed in. */
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
  }
}

/** The text form of a place, `<shelf>/<id>`, which is also its path below the project root. */
export function placeName({ shelf, id }: Place): string {
  return `${shelf}/${id}`
}

export function installPath(layout: Layout, { shelf, id }: Place): string {
  return join(layout.root, shelf, id)
}

/** The host's own settings for a place, next to its directory so that no deployment replaces them. */
export function settingsPath(layout: Layout, { shelf, id }: Place): string {
  return join(layout.root, shelf, `${id}.env`)
}

export function snapshotsPath(layout: Layout, { shelf, id }: Place): string {
  return join(layout.snapshots, shelf, id)
}

export function stagingPath(layout: Layout, deploymentId: string): string {
  return join(layout.staging, deploymentId)
}

export function treeRecordPath({ trees }: Layout, record: string): string {
  return join(trees, `${record}.tree`)
}

/** Where earlier versions of the action have recorded a tree. */
export function earlierRecordPath({ trees }: Layout, treeDigest: string): string {
  return join(trees, `${treeDigest}.json`)
}

export function auditPath(layout: Layout): string {
  return join(layout.own, 'audit.jsonl')
}

export function reservePath(layout: Layout): string {
  return join(layout.own, 'reserve')
}
