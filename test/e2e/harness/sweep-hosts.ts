import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, lstatSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { Store } from '../../../hub/store.ts'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import type { LocalStage } from '../../../local/stage.ts'
import { rewriteCopiedJournal } from '../../install/journal/journal-text.ts'
import {
  assertNothingStrays,
  assertOneStory,
  assertReported,
  assertSettled,
  type Listing,
  listLasting,
  listLive,
  readReports,
} from './evidence.ts'
import { copyBuild, copyHost, type HostCopy, type HostOrigin } from './prepared-host.ts'
import { filesWith, openProjectStage, type Parts } from './project-stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, SIGNING_SECRET, type Stage, writeFiles } from './stage.ts'

const PLUGIN_SECRET_KEY = 'the host framework signs with this'
const OLD_VERSIONS = ['0.7.0', '0.8.0', '0.9.0', '1.0.0']
const NEW_VERSION = '2.0.0'

const UPDATE_PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
`

/**
 * A host that runs 1.0.0 with three snapshots and its own files, and copies of that host. An update to 2.0.0 removes
 * the oldest snapshot, carries the host's files over and creates a settings file.
 */
export interface SweepHosts {
  readonly stage: Stage
  /** The texts that no file or log may contain. */
  readonly secrets: readonly string[]
  /** The live trees before the update. */
  readonly old: Listing
  /** A copy of a host, by default of the prepared host. The name is also the copy's host id. */
  copy(name: string, from?: SweepHost): SweepHost
  close(): Promise<void>
}

export interface SweepHost extends HostCopy {
  /** Updates the host to 2.0.0. */
  update(run?: Partial<ActionRun>): Promise<ActionResult>
  /** Starts an update that fails after the switch: the settings lack a variable that the plugin requires. */
  updateInVain(run?: Partial<ActionRun>): Promise<ActionResult>
}

export async function openSweepHosts(): Promise<SweepHosts> {
  const stage = await openStage()
  const repository = copyBuild(stage)
  await installOldVersions(stage, repository)
  await stage.publish(NEW_VERSION, newFiles())
  const inputs = { version: NEW_VERSION, 'plugin-secret-key': PLUGIN_SECRET_KEY }
  const origin = { stage, repository, root: stage.root, plan: UPDATE_PLAN, inputs }
  const secrets = [stage.apiKey, SIGNING_SECRET, PLUGIN_SECRET_KEY]
  return {
    stage,
    secrets,
    old: listLive(stage.root),
    copy: (name, from) => copySweepHost({ ...origin, root: from?.root ?? origin.root }, name, from),
    close: () => stage.close(),
  }
}

async function installOldVersions(stage: Stage, repository: string): Promise<void> {
  for (const version of OLD_VERSIONS) {
    await stage.publish(version, { ...pluginFiles(version), 'docs/guide.md': `Guide of ${version}\n` })
    const { exitCode, log } = await stage.deploy({ version }, { repository })
    if (exitCode !== 0) throw new Error(log)
  }
  writeFiles(join(stage.root, 'plugins/greeter'), { 'data/visitors': '17\n', '.env': 'LANGUAGE=en\n' })
  symlinkSync('visitors', join(stage.root, 'plugins/greeter/data/latest'))
  writeFiles(stage.root, { 'plugins/neighbour/plugin.yaml': 'name: neighbour\n' })
}

function newFiles(): Record<string, string> {
  const yaml = `name: greeter\nversion: "${NEW_VERSION}"\nexecution_mode: trusted\nenvironment:\n  required: [GREETER_TOKEN]\n`
  return pluginFiles(NEW_VERSION, {
    'plugin.yaml': yaml,
    '.env.template': 'GREETER_TOKEN=\n',
    'lib/greeting.py': 'GREETING = "hello"\n',
  })
}

function copySweepHost(origin: HostOrigin, name: string, from: HostCopy | undefined): SweepHost {
  const host = copyHost(origin, name)
  if (from !== undefined) moveJournal(from, host)
  return {
    ...host,
    update: (run = {}) => host.deploy({ settings: 'GREETER_TOKEN=of this host' }, run),
    updateInVain: (run = {}) => host.deploy({}, run),
  }
}

/**
 * Rewrites the journal in the copy of an interrupted host, so that it contains the copy's host id and the inodes of the
 * copied files.
 */
function moveJournal(from: HostCopy, to: HostCopy): void {
  const journal = join(to.root, '.hub-deploy', 'journal.jsonl')
  if (!existsSync(journal)) return
  const paths = new Map(
    readdirSync(from.root, { recursive: true, encoding: 'utf8' }).map(path => [inodeOf(join(from.root, path)), path]),
  )
  rewriteCopiedJournal(journal, ino => join(to.root, paths.get(ino) ?? 'gone'), to.name)
}

function inodeOf(path: string): string {
  return String(lstatSync(path).ino)
}

interface TakeOver {
  host: SweepHost
  hub: Store
  /** The lasting files of a host that was updated undisturbed. */
  reference: Listing
  /** The id of the deployment that was cut off; undefined if the run had not yet set that output. */
  deploymentId: string | undefined
  /** True if the journal certainly contains that deployment's beginning. */
  hasBegun: boolean
}

/**
 * Asserts that the next normal update succeeds by itself and leaves the same files as an undisturbed update, including
 * the replaced version's snapshot. Also asserts that the deployment that was cut off is reported once, with its real
 * outcome.
 */
export async function assertTakenOver({ host, hub, reference, deploymentId, hasBegun }: TakeOver): Promise<void> {
  const next = await host.update()
  const { changed, outcome, previous_version } = assertReported(host.root, next)
  assert.equal(outcome, 'success', next.log)
  assert.deepEqual(listLasting(host.root), reference)
  const reports = readReports(host.root)
  assert.ok(!hasBegun || reports.has(deploymentId ?? ''), 'a deployment that has begun must have a local report')
  const earlier = [...reports.values()].filter(({ deployment_id }) => deployment_id !== next.outputs['deployment-id'])
  const wasNew = earlier.some(({ outcome, version }) => outcome === 'success' && version === '2.0.0')
  assert.deepEqual([changed, previous_version], wasNew ? [false, '2.0.0'] : [true, '1.0.0'])
  assertNothingStrays(host.root)
  assertOneStory(host.root, hub)
  await assertSettled(host.root, () => host.update())
}

/** A host that runs 2.0.0 and can be rolled back to 1.0.0, and copies of it. */
export interface RollbackHosts {
  readonly stage: Pick<LocalStage, 'hub'>
  readonly root: string
  copy(name: string, root?: string): RollbackHost
  close(): Promise<void>
}

export interface RollbackHost extends HostCopy {
  /** Restores 1.0.0, or removes the plugin. */
  rollBack(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** Runs the post step of a rollback that was killed while it had the lock. */
  rollbackPost(run?: Partial<ActionRun>): Promise<ActionResult>
}

/** What is rolled back; a plugin that is to be removed is not, but its removal has the same states. */
export type Subject = 'a plugin with kept paths' | 'a project of three parts' | 'a plugin that is to be removed'

export async function openRollbackHosts(subject: Subject): Promise<RollbackHosts> {
  return subject === 'a project of three parts' ? await openProjectHosts() : await openPluginHosts(subject)
}

/**
 * A host whose rollback prunes 0.9.0 and carries the host's data over. The file etc/local.conf is in both versions, and
 * is a kept path only for the rollback, not for the deployments.
 */
async function openPluginHosts(subject: Subject): Promise<RollbackHosts> {
  const stage = await openStage()
  const repository = copyBuild(stage)
  for (const version of ['0.9.0', '1.0.0', '2.0.0']) {
    await stage.publish(version, pluginFiles(version, { 'etc/local.conf': `${version}\n`, 'docs/guide.md': 'Guide\n' }))
    await succeed(stage.deploy({ version, 'keep-paths': 'data' }, { repository }))
  }
  writeFiles(stage.root, {
    'plugins/greeter/data/visitors': '17\n',
    'plugins/greeter.env': 'A=1\n',
    'plugins/neighbour/plugin.yaml': 'name: neighbour\n',
  })
  const inputs = { version: '9.9.9', 'keep-snapshots': '1' }
  const own = { id: 'greeter', 'to-version': '1.0.0', 'keep-snapshots': '1', 'keep-paths': 'data\netc/local.conf' }
  const report = { 'hub-url': stage.hub.url, 'api-key': stage.apiKey, slug: 'greeter' }
  const origin = { stage, repository, root: stage.root, plan: PLUGIN_PLAN, inputs }
  const close = () => stage.close()
  if (subject === 'a plugin that is to be removed')
    return hostsOf(origin, { id: 'greeter', 'keep-snapshots': '1' }, close, 'remove')
  return hostsOf(origin, { ...own, ...report }, close)
}

/** A host whose rollback replaces cart, removes till and restores mailer with its data. */
async function openProjectHosts(): Promise<RollbackHosts> {
  const stage = await openProjectStage()
  const repository = copyBuild(stage)
  const versions: Record<string, Parts> = {
    '1.0.0': { included: ['cart', 'mailer'] },
    '2.0.0': { included: ['cart', 'till'] },
  }
  for (const [version, parts] of Object.entries(versions)) {
    await stage.publish(version, filesWith(version, parts))
    await succeed(stage.deploy({ version }, { repository }))
    const data = version === '1.0.0' ? 'extensions/mailer/data/queue' : 'plugins/till/data/coins'
    writeFiles(stage.root, { 'plugins/cart/data/orders': `${version}\n`, [data]: '17\n' })
  }
  const own = { 'project-id': 'shop', 'to-version': '1.0.0' }
  const origin = { stage, repository, root: stage.root, inputs: { version: '9.9.9' } }
  return hostsOf(origin, own, () => stage.close())
}

function hostsOf(
  origin: HostOrigin & { readonly stage: Pick<LocalStage, 'hub'> },
  own: Record<string, string>,
  close: () => Promise<void>,
  action: 'rollback' | 'remove' = 'rollback',
): RollbackHosts {
  const copy = (name: string, root?: string): RollbackHost => {
    const host = root === undefined ? copyHost(origin, name) : copyHost(origin, name, root)
    const { repository } = origin
    const rollBack: RollbackHost['rollBack'] = (inputs = {}, run = {}) =>
      runAction({
        action,
        repository,
        workspace: host.workspace,
        ...run,
        inputs: { 'project-root': host.root, 'host-id': name, ...own, ...inputs },
      })
    const rollbackPost: RollbackHost['rollbackPost'] = (run = {}) =>
      rollBack({}, { phase: 'post', state: { 'deployment-id': randomUUID() }, ...run })
    return { ...host, rollBack, rollbackPost }
  }
  return { stage: origin.stage, root: origin.root, copy, close }
}

async function succeed(run: Promise<ActionResult>): Promise<void> {
  const { exitCode, log } = await run
  if (exitCode !== 0) throw new Error(log)
}
