import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionResult } from '../../../local/runner.ts'
import { type Listing, listLasting, listLive } from './evidence.ts'
import { copyBuild, copyHost, type HostCopy, type HostOrigin, hostFolder } from './prepared-host.ts'
import { filesWith, openProjectStage } from './project-stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from './stage.ts'
import { openRollbackHosts, type Subject } from './sweep-hosts.ts'

/** Hosts on which the power fails during one kind of deployment. */
export interface PowerCutHosts {
  readonly stage: Pick<Stage, 'hub'>
  /** The live trees of the host before and after the deployment. */
  readonly allowed: { readonly old: Listing; readonly new: Listing }
  /** The lasting files of a host after an undisturbed deployment of the new version. */
  readonly reference: Listing
  /** The inputs of the deployment during which the power fails, and its outcome without a power cut. */
  readonly inputs: Readonly<Record<string, string>>
  readonly outcome: 'success' | 'rolled_back'
  /**
   * Kills a deployment. The power then fails during the recovery. Undefined if the power fails during the deployment
   * itself.
   */
  readonly interrupt?: (host: HostCopy, inputs: Readonly<Record<string, string>>) => Promise<void>
  /**
   * True if the requests of the deployment can go through a proxy. Those of a project cannot, because a project's hub
   * puts its own address into its answers.
   */
  readonly isMarketplace: boolean
  /** A copy of the host before the deployment. The copy's `deploy` runs the deployment, or the operator's rollback. */
  copy(name: string, root?: string): HostCopy
  close(): Promise<void>
}

export type Deployment =
  | 'first install'
  | 'update'
  | 'rollback'
  | 'operator rollback'
  | 'project update'
  | 'removal'
  | 'operator removal'
  | 'recovery'

/** A plugin's plan that also creates the plugin's settings file. */
const PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
`
const KILLED_PLAN = `${PLAN}  - {id: kill, action: provision, plugin: greeter, depends_on: [env]}
`
const HOST_CONFIG = `version: 1
provision: {greeter: {command: [/bin/sh, -c, 'kill -KILL $PPID']}}
`
const TEMPLATE = { '.env.template': 'COLOUR=blue\nTOKEN=\n' }
/** A version that fails after the switch, because TOKEN is empty. */
const NEEDY_VERSION = '2.0.0-needy'
const NEEDY_YAML = `name: greeter
version: "${NEEDY_VERSION}"
environment: {required: [TOKEN]}
`

export async function openPowerCutHosts(deployment: Deployment): Promise<PowerCutHosts> {
  switch (deployment) {
    case 'first install':
      return await openPluginHosts([])
    case 'update':
      return await openPluginHosts(['0.9.0', '1.0.0'])
    case 'rollback':
      return {
        ...(await openPluginHosts(['0.9.0', '1.0.0'])),
        inputs: { version: NEEDY_VERSION },
        outcome: 'rolled_back',
      }
    case 'operator rollback':
      return await openRestoringHosts('a plugin with kept paths')
    case 'operator removal':
      return await openRestoringHosts('a plugin that is to be removed')
    case 'project update':
      return await openProjectHosts(['cart', 'till', 'mailer'])
    case 'removal':
      return await openProjectHosts(['cart', 'till'])
    case 'recovery':
      return await openInterruptedHosts()
  }
}

/**
 * A host that an operator rolls back to a named version, so that a repeated rollback has the same target, or whose plugin
 * an operator removes.
 */
async function openRestoringHosts(subject: Subject): Promise<PowerCutHosts> {
  const hosts = await openRollbackHosts(subject)
  const copy: PowerCutHosts['copy'] = (name, root) => {
    const host = hosts.copy(name, root)
    const post: HostCopy['post'] = (inputs, run = {}) =>
      host.rollBack(inputs, { phase: 'post', state: { 'deployment-id': randomUUID() }, ...run })
    return { ...host, deploy: host.rollBack, post }
  }
  const host = copy('undisturbed')
  await succeed(host.deploy())
  return {
    stage: hosts.stage,
    allowed: { old: listLive(hosts.root), new: listLive(host.root) },
    reference: listLasting(host.root),
    inputs: {},
    outcome: 'success',
    isMarketplace: subject === 'a plugin with kept paths',
    copy,
    close: hosts.close,
  }
}

/** A host whose update is killed after the switch, while the last step of the plan runs. */
async function openInterruptedHosts(): Promise<PowerCutHosts> {
  const hosts = await openPluginHosts(['0.9.0', '1.0.0'])
  return {
    ...hosts,
    outcome: 'rolled_back',
    async interrupt(host, inputs) {
      const { path } = host.workspace
      writeFiles(path, { 'host.yaml': HOST_CONFIG, 'killed.yaml': KILLED_PLAN })
      const kill = { 'host-config': join(path, 'host.yaml'), 'install-plan': 'killed.yaml' }
      const { signal, log } = await host.deploy({ ...inputs, ...kill })
      assert.equal(signal, 'SIGKILL', log)
    },
  }
}

/**
 * A host on which these versions of a plugin were deployed one after the other. If there are versions, the host then
 * created its own files, and the update prunes a snapshot.
 */
async function openPluginHosts(versions: readonly string[]): Promise<PowerCutHosts> {
  const stage = await openStage()
  const repository = copyBuild(stage)
  for (const version of ['0.9.0', '1.0.0', '2.0.0']) await stage.publish(version, pluginFiles(version, TEMPLATE))
  await stage.publish(NEEDY_VERSION, { ...pluginFiles(NEEDY_VERSION, TEMPLATE), 'plugin.yaml': NEEDY_YAML })
  for (const version of versions) await succeed(stage.deploy({ version }, { repository }))
  if (versions.length > 0)
    writeFiles(join(stage.root, 'plugins/greeter'), { 'data/visitors': '17\n', '.env': 'LANGUAGE=en\n' })
  const inputs = { version: '2.0.0', 'keep-snapshots': '1' }
  return await openHosts({ stage, repository, root: stage.root, plan: PLAN, inputs }, () => stage.close())
}

/** A host with a project of three parts. The new version has only the parts `left`. */
async function openProjectHosts(left: readonly string[]): Promise<PowerCutHosts> {
  const stage = await openProjectStage()
  const repository = copyBuild(stage)
  for (const version of ['1.0.0', '2.0.0']) {
    await stage.publish(version, filesWith(version))
    await succeed(stage.deploy({ version }, { repository }))
  }
  await stage.publish('3.0.0', filesWith('3.0.0', { included: left }))
  writeFiles(stage.root, { 'plugins/cart/data/orders': '17\n', 'extensions/mailer/data/queue': '17 letters\n' })
  const inputs = { version: '3.0.0', 'keep-snapshots': '1' }
  return await openHosts({ stage, repository, root: stage.root, inputs }, () => stage.close())
}

async function openHosts(
  origin: HostOrigin & { stage: PowerCutHosts['stage'] },
  close: () => Promise<void>,
): Promise<PowerCutHosts> {
  const copy = (name: string, root?: string) =>
    root === undefined ? copyHost(origin, name) : copyHost(origin, name, root)
  // A host without any deployment has no .hub-deploy yet, but only a host that has one can be copied.
  mkdirSync(join(origin.root, '.hub-deploy'), { recursive: true, mode: 0o700 })
  const undisturbed = copy('undisturbed')
  await succeed(undisturbed.deploy())
  const allowed = { old: listLive(origin.root), new: listLive(undisturbed.root) }
  const reference = listLasting(undisturbed.root)
  rmSync(hostFolder(origin.stage, 'undisturbed'), { recursive: true })
  const isMarketplace = origin.plan !== undefined
  return { stage: origin.stage, allowed, reference, inputs: {}, outcome: 'success', isMarketplace, copy, close }
}

async function succeed(run: Promise<ActionResult>): Promise<void> {
  const { exitCode, log } = await run
  assert.equal(exitCode, 0, log)
}
