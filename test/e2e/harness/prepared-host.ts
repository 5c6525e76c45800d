import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { type ActionResult, type ActionRun, makeWorkspace, type Workspace } from '../../../local/runner.ts'
import type { JournalRecord } from '../../../src/install/journal/records.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { listTree } from '../../folders.ts'
import { acceptedReports } from './evidence.ts'
import { openStage, pluginFiles, type Stage } from './stage.ts'

/**
 * A host that has greeter 1.0.0 with the host's own data, and 0.9.0 as the only snapshot. By default, the host's
 * deployments install 2.0.0.
 */
export interface PreparedHost extends HostCopy {
  /** The tree that the host runs: everything below plugins/. */
  tree(): Record<string, string>
  /** The status of each report that the hub accepted from this host, oldest first. */
  reported(): string[]
  /** The local reports since the host was prepared, oldest first. */
  localReports(): LocalReport[]
  journal(): JournalRecord[]
}

/** A hub with greeter 0.9.0, 1.0.0 and 2.0.0, and as many identical hosts as a test needs. */
export interface Fleet {
  readonly stage: Stage
  /** The content of plugins/ before and after the update. */
  readonly old: Record<string, string>
  readonly new: Record<string, string>
  newHost(name: string, root?: string): PreparedHost
  close(): Promise<void>
}

const UPDATE_PLAN = `format_version: "1"
project_id: greeter
version: "2"
steps:
  - {id: files, action: install_plugin, plugin: greeter, snapshot: true}
  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
`

/** A version that fails in its step env, after the switch, because TOKEN is missing. */
export const FAILING_VERSION = '2.0.0-needy'

const NEEDY_YAML = `name: greeter
version: "${FAILING_VERSION}"
environment: {required: [TOKEN]}
`

export async function openFleet(): Promise<Fleet> {
  const stage = await openStage()
  try {
    return await prepareFleet(stage)
  } catch (error) {
    await stage.close()
    throw error
  }
}

export function assertSucceeds(result: ActionResult): void {
  assert.equal(result.outputs['outcome'], 'success', result.log)
  assert.equal(result.exitCode, 0)
}

async function prepareFleet(stage: Stage): Promise<Fleet> {
  const root = hostFolder(stage, 'template')
  const inputs = { version: '2.0.0', 'keep-snapshots': '1' }
  const origin = { stage, repository: copyBuild(stage), root, plan: UPDATE_PLAN, inputs }
  await publishVersions(stage)
  await deployFirstVersions(origin)
  const newHost: Fleet['newHost'] = (name, at) => prepareHost(stage, copyHost(origin, name, at))
  const undisturbed = newHost('undisturbed')
  assertSucceeds(await undisturbed.deploy())
  const old = listTree(join(root, 'plugins'))
  return { stage, newHost, old, new: undisturbed.tree(), close: () => stage.close() }
}

async function publishVersions(stage: Stage): Promise<void> {
  const template = { '.env.template': 'COLOUR=blue\nTOKEN=\n' }
  for (const version of ['0.9.0', '1.0.0', '2.0.0']) await stage.publish(version, pluginFiles(version, template))
  await stage.publish(FAILING_VERSION, { ...pluginFiles(FAILING_VERSION, template), 'plugin.yaml': NEEDY_YAML })
}

async function deployFirstVersions({ stage, root, repository }: HostOrigin): Promise<void> {
  mkdirSync(root, { recursive: true })
  for (const version of ['0.9.0', '1.0.0']) {
    assertSucceeds(await stage.deploy({ version, 'project-root': root, 'host-id': 'template' }, { repository }))
  }
  mkdirSync(join(root, 'plugins/greeter/data'))
  writeFileSync(join(root, 'plugins/greeter/data/visits'), '42\n')
}

function prepareHost(stage: Stage, host: HostCopy): PreparedHost {
  const { name, root } = host
  const reports = join(root, '.hub-deploy/reports')
  const before = new Set(readdirSync(reports))
  return {
    ...host,
    tree: () => listTree(join(root, 'plugins')),
    reported: () =>
      acceptedReports(stage)
        .filter(row => row.host_id === name)
        .map(row => row.status),
    localReports: () =>
      readdirSync(reports)
        .filter(file => !before.has(file))
        .sort()
        .map(file => JSON.parse(readFileSync(join(reports, file), 'utf8'))),
    journal: () => readJournalLines(join(root, '.hub-deploy/journal.jsonl')),
  }
}

function readJournalLines(path: string): JournalRecord[] {
  if (!existsSync(path)) return []
  const lines = readFileSync(path, 'utf8').split('\n').slice(0, -1)
  return lines.map(line => JSON.parse(line))
}

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
  if (existsSync(join(root, '.hub-deploy'))) chmodSync(join(root, '.hub-deploy'), 0o700)
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
  for (const part of ['action.yml', 'project', 'rollback', 'remove', 'dist'])
    cpSync(join(from, part), join(to, part), { recursive: true })
  return to
}
