import { randomUUID } from 'node:crypto'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import type { LocalStage } from '../../../local/stage.ts'
import { filesWith, type Parts } from './changing-parts.ts'
import { copyBuild, copyHost, type HostCopy, type HostOrigin } from './host-copy.ts'
import { openProjectStage } from './project-stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, writeFiles } from './stage.ts'

/** A host that runs 2.0.0 and can be rolled back to 1.0.0, and copies of it. */
export interface RollbackHosts {
  readonly stage: Pick<LocalStage, 'hub'>
  readonly root: string
  copy(name: string, root?: string): RollbackHost
  close(): Promise<void>
}

export interface RollbackHost extends HostCopy {
  /** Restores 1.0.0. */
  rollBack(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** Runs the post step of a rollback that was killed while it had the lock. */
  rollbackPost(run?: Partial<ActionRun>): Promise<ActionResult>
}

export type Subject = 'a plugin with kept paths' | 'a project of three parts'

export async function openRollbackHosts(subject: Subject): Promise<RollbackHosts> {
  return subject === 'a plugin with kept paths' ? await openPluginHosts() : await openProjectHosts()
}

/**
 * A host whose rollback prunes 0.9.0 and carries the host's data over. The file etc/local.conf is in both versions, and
 * is a kept path only for the rollback, not for the deployments.
 */
async function openPluginHosts(): Promise<RollbackHosts> {
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
  return hostsOf(origin, { ...own, ...report }, () => stage.close())
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
): RollbackHosts {
  const copy = (name: string, root?: string): RollbackHost => {
    const host = root === undefined ? copyHost(origin, name) : copyHost(origin, name, root)
    const { repository } = origin
    const rollBack: RollbackHost['rollBack'] = (inputs = {}, run = {}) =>
      runAction({
        action: 'rollback',
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
