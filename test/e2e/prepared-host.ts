import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type ActionResult, type ActionRun, makeWorkspace, type Workspace } from '../../scripts/local-runner.ts'
import type { JournalRecord } from '../../src/install/journal.ts'
import type { LocalReport } from '../../src/install/local-report.ts'
import { listTree } from '../install/directory-listing.ts'
import { acceptedReports } from './evidence.ts'
import { openStage, pluginFiles, type Stage } from './stage.ts'

/** A host on which greeter 1.0.0 is installed, 0.9.0 is its one snapshot, and the plugin has written its own data. */
export interface PreparedHost {
  /** Its host id. */
  readonly name: string
  readonly root: string
  readonly workspace: Workspace
  /** Deploys 2.0.0 by UPDATE_PLAN, unless told otherwise. */
  deploy(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** The post step after a main step that had the lock. */
  post(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** What the host runs: everything below plugins/. */
  tree(): Record<string, string>
  /** What the hub accepted from this host, oldest first: the status of each. */
  reported(): string[]
  /** The local reports that the host got since it was prepared, oldest first. */
  localReports(): LocalReport[]
  journal(): JournalRecord[]
}

/** A hub with greeter 0.9.0, 1.0.0 and 2.0.0, and as many equal hosts as one asks for. */
export interface Fleet {
  readonly stage: Stage
  /** What plugins/ holds before and after the update. */
  readonly old: Record<string, string>
  readonly new: Record<string, string>
  newHost(name: string, root?: string): PreparedHost
  close(): Promise<void>
}

export const UPDATE_PLAN = `format_version: "1"
project_id: greeter
version: "2"
steps:
  - {id: files, action: install_plugin, plugin: greeter, snapshot: true}
  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
`

/** Fails in its step env, after the switch, for want of TOKEN. */
export const FAILING_VERSION = '2.0.0-needy'

const NEEDY_YAML = `name: greeter
version: "${FAILING_VERSION}"
environment: {required: [TOKEN]}
`

export async function openFleet(): Promise<Fleet> {
  const folder = mkdtempSync(join(tmpdir(), 'fleet-'))
  const stage = await openStage()
  const close = async (): Promise<void> => {
    await stage.close()
    rmSync(folder, { recursive: true, force: true })
  }
  try {
    return { ...(await prepareFleet(stage, folder)), close }
  } catch (error) {
    await close()
    throw error
  }
}

/** What must hold once a later run has succeeded: nothing of the dead one strays, each deployment has one report. */
export function assertNothingStrays(host: PreparedHost): void {
  const own = join(host.root, '.hub-deploy')
  assert.deepEqual(readdirSync(join(own, 'staging')), [])
  assert.deepEqual(
    Object.keys(listTree(own)).filter(path => /(^|\/)(journal\.jsonl|lock.*|.*\.tmp)$/.test(path)),
    [],
  )
  const ids = host.localReports().map(report => report.deployment_id)
  assert.equal(new Set(ids).size, ids.length)
}

export function assertSucceeds(result: ActionResult): void {
  assert.equal(result.outputs['outcome'], 'success', result.log)
  assert.equal(result.exitCode, 0)
}

async function prepareFleet(stage: Stage, folder: string): Promise<Omit<Fleet, 'close'>> {
  const template = join(folder, 'template')
  const repository = copyBuild(join(folder, 'repository'))
  await publishVersions(stage)
  await deployFirstVersions(stage, template, repository)
  const newHost: Fleet['newHost'] = (name, root = join(folder, name)) =>
    copyHost({ stage, template, repository }, name, root, makeWorkspace(folder))
  const undisturbed = newHost('undisturbed')
  assertSucceeds(await undisturbed.deploy())
  return { stage, newHost, old: listTree(join(template, 'plugins')), new: undisturbed.tree() }
}

/** So that a build that goes on meanwhile disturbs nobody. */
function copyBuild(to: string): string {
  const repository = resolve(import.meta.dirname, '../..')
  mkdirSync(to)
  for (const part of ['action.yml', 'dist']) cpSync(join(repository, part), join(to, part), { recursive: true })
  return to
}

async function publishVersions(stage: Stage): Promise<void> {
  const template = { '.env.template': 'COLOUR=blue\nTOKEN=\n' }
  for (const version of ['0.9.0', '1.0.0', '2.0.0']) await stage.publish(version, pluginFiles(version, template))
  await stage.publish(FAILING_VERSION, { ...pluginFiles(FAILING_VERSION, template), 'plugin.yaml': NEEDY_YAML })
}

async function deployFirstVersions(stage: Stage, root: string, repository: string): Promise<void> {
  for (const version of ['0.9.0', '1.0.0']) {
    assertSucceeds(await stage.deploy({ version, 'project-root': root, 'host-id': 'template' }, { repository }))
  }
  mkdirSync(join(root, 'plugins/greeter/data'))
  writeFileSync(join(root, 'plugins/greeter/data/visits'), '42\n')
}

interface Origin {
  stage: Stage
  template: string
  repository: string
}

function copyHost(origin: Origin, name: string, root: string, workspace: Workspace): PreparedHost {
  const { stage, template, repository } = origin
  execFileSync('cp', ['-a', '-T', template, root])
  writeFileSync(join(workspace.path, 'install.yaml'), UPDATE_PLAN)
  const reports = join(root, '.hub-deploy/reports')
  const before = new Set(readdirSync(reports))
  const own = { 'project-root': root, 'host-id': name, version: '2.0.0', 'keep-snapshots': '1' }
  const deploy: PreparedHost['deploy'] = (inputs = {}, run = {}) =>
    stage.deploy({ ...own, ...inputs }, { repository, workspace, ...run })
  return {
    name,
    root,
    workspace,
    deploy,
    post: (inputs = {}, run = {}) => deploy(inputs, { phase: 'post', state: { locked: 'true' }, ...run }),
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
