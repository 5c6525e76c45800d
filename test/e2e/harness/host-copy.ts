import { randomUUID } from 'node:crypto'
import { chmodSync, cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type ActionResult, type ActionRun, makeWorkspace, type Workspace } from '../../../local/runner.ts'
import type { Stage } from './stage.ts'

/** A separate host that starts as a copy of a prepared one. */
export interface HostCopy {
  /** The host's id. */
  readonly name: string
  readonly root: string
  readonly workspace: Workspace
  /** Deploys with these inputs, in addition to those of the host's origin. */
  deploy(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** Runs the post step of a main step that was killed while it had the lock. */
  post(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
}

export interface HostOrigin {
  stage: Pick<Stage, 'folder' | 'deploy'>
  /** The folder of the built actions; see `copyBuild`. */
  repository: string
  /** The project root to copy. */
  root: string
  /** The plan for the copies' deployments. A project contains its own plan. */
  plan?: string
  inputs: Readonly<Record<string, string>>
}

export function copyHost(origin: HostOrigin, name: string, root = hostFolder(origin.stage, name)): HostCopy {
  const { stage, repository } = origin
  const workspace = makeWorkspace(stage.folder)
  mkdirSync(dirname(root), { recursive: true })
  cpSync(origin.root, root, { recursive: true, preserveTimestamps: true, verbatimSymlinks: true })
  // cpSync keeps the modes of files, but not those of folders.
  chmodSync(join(root, '.hub-deploy'), 0o700)
  if (origin.plan !== undefined) writeFileSync(join(workspace.path, 'install.yaml'), origin.plan)
  const own = { ...origin.inputs, 'project-root': root, 'host-id': name }
  const deploy: HostCopy['deploy'] = (inputs = {}, run = {}) =>
    stage.deploy({ ...own, ...inputs }, { repository, workspace, ...run })
  const post: HostCopy['post'] = (inputs = {}, run = {}) =>
    deploy(inputs, { phase: 'post', state: { 'deployment-id': randomUUID() }, ...run })
  return { name, root, workspace, deploy, post }
}

/** The default project root of a copied host. */
export function hostFolder({ folder }: Pick<Stage, 'folder'>, name: string): string {
  return join(folder, 'hosts', name)
}

/** Copies the built actions into a folder of the stage, so that a build in the meantime does no harm. */
export function copyBuild({ folder }: Pick<Stage, 'folder'>): string {
  const from = resolve(import.meta.dirname, '../../..')
  const to = join(folder, 'repository')
  for (const part of ['action.yml', 'project', 'rollback', 'dist'])
    cpSync(join(from, part), join(to, part), { recursive: true })
  return to
}
