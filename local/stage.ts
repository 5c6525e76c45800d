import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createKey } from '../hub/access.ts'
import { type RunningHub, startHub } from '../hub/server.ts'
import { openStore, type Store } from '../hub/store.ts'
import { makeWorkspace, type Workspace } from './runner.ts'

/** A running reference hub, a host and an operator's workspace, all in one folder. */
export interface LocalStage {
  readonly folder: string
  readonly hub: RunningHub
  /** The hub's data folder. */
  readonly dataDir: string
  /** The hub's data, opened in addition to the running hub. */
  readonly store: Store
  /** The operator's API key. */
  readonly apiKey: string
  /** The host's project root. */
  readonly root: string
  readonly workspace: Workspace
  /** Stops the hub, and removes the folder unless `keep` is set. */
  close(keep?: boolean): Promise<void>
}

/** The hub and the host of an earlier, closed stage, to start a new stage with copies of them. */
export type StageOrigin = Pick<LocalStage, 'dataDir' | 'root' | 'apiKey'>

/** Opens a stage in a new temporary folder whose name starts with `name`, with copies of `origin` if it is given. */
export async function openLocalStage(name: string, origin?: StageOrigin): Promise<LocalStage> {
  const folder = mkdtempSync(join(tmpdir(), `${name}-`))
  // Both folders already have the names that `openStageIn` expects.
  if (origin !== undefined) execFileSync('cp', ['-a', origin.dataDir, origin.root, folder])
  return await openStageIn(folder, origin?.apiKey)
}

/**
 * Opens a stage in an existing folder, with the hub and the host of an earlier, closed stage there, or with new ones.
 */
export async function openStageIn(folder: string, knownApiKey?: string): Promise<LocalStage> {
  const dataDir = join(folder, 'hub')
  const root = join(folder, 'host')
  mkdirSync(root, { recursive: true, mode: 0o755 })
  const workspace = makeWorkspace(folder)
  const hub = await startHub({ dataDir })
  const store = openStore(dataDir)
  const apiKey = knownApiKey ?? createKey(store, { name: 'operator' }).key
  return {
    folder,
    hub,
    dataDir,
    store,
    apiKey,
    root,
    workspace,
    async close(keep = false) {
      await hub.close()
      store.close()
      if (!keep) rmSync(folder, { recursive: true, force: true })
    },
  }
}
