import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { TestContext } from 'node:test'
import { zipFolder } from '../../../hub/archive/make-zip.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import { type LocalStage, openLocalStage, type StageOrigin } from '../../../local/stage.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'

export const SIGNING_SECRET = 'the developer signs with this'

/** A local stage on which plugins and services are published and deployed. */
export interface Stage extends LocalStage {
  /** Publishes like a hub that does not check its artifacts. */
  publish(version: string, files: Record<string, string>, options?: PublishOptions): Promise<void>
  publishBytes(version: string, bytes: Uint8Array, options?: PublishOptions): Promise<void>
  writePlan(text: string): void
  /** Runs the deploy action with the inputs that every run here needs, and with these. */
  deploy(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** Runs the verify action with the hub inputs that every run here needs, and with these. */
  verify(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
}

interface PublishOptions {
  kind?: 'plugin' | 'service'
  slug?: string
  replace?: boolean
  signingSecret?: string
}

export const PLUGIN_PLAN = `format_version: "1"
project_id: greeter
version: "1"
steps:
  - {id: prepare, action: prepare}
  - {id: files, action: install_plugin, plugin: greeter, snapshot: true, depends_on: [prepare]}
`

export const SERVICE_PLAN = `format_version: "1"
project_id: clock
version: "1"
steps:
  - {id: files, action: install_extension, extension: clock, snapshot: true}
`

/** The files of a small plugin. */
export function pluginFiles(version: string, more: Record<string, string> = {}): Record<string, string> {
  return {
    'plugin.yaml': `name: greeter\nversion: "${version}"\n`,
    'src/main.py': `print("hello from ${version}")\n`,
    ...more,
  }
}

/** Opens a stage, by default with an empty host; see also `preparedOnce`. */
export async function openStage(origin?: StageOrigin): Promise<Stage> {
  const stage = await openLocalStage('stage', origin)
  const { folder, hub, store, apiKey, root, workspace } = stage
  const planPath = join(workspace.path, 'install.yaml')
  writeFileSync(planPath, PLUGIN_PLAN)
  let published = 0
  const publication = (version: string, options: PublishOptions) => ({
    kind: options.kind ?? ('plugin' as const),
    slug: options.slug ?? 'greeter',
    version,
    signingSecret: options.signingSecret ?? SIGNING_SECRET,
    replace: options.replace ?? false,
  })
  const hubInputs = {
    'hub-url': hub.url,
    slug: 'greeter',
    'api-key': apiKey,
    'signing-secret': SIGNING_SECRET,
  }
  return {
    ...stage,
    async publish(version, files, options = {}) {
      const source = join(folder, `source-${++published}`)
      writeFiles(source, files)
      await publishArchive(store, zipFolder(source).bytes, publication(version, options))
    },
    async publishBytes(version, bytes, options = {}) {
      await publishArchive(store, bytes, publication(version, options))
    },
    writePlan: text => writeFileSync(planPath, text),
    deploy: (inputs = {}, run = {}) =>
      runAction({
        workspace,
        ...run,
        inputs: {
          ...hubInputs,
          'install-plan': 'install.yaml',
          'project-root': root,
          'host-id': 'host-1',
          ...inputs,
        },
      }),
    verify: (inputs = {}, run = {}) =>
      runAction({ action: 'verify', workspace, ...run, inputs: { ...hubInputs, ...inputs } }),
  }
}

/** Opens a stage with 1.0.0 installed, with these files. */
export async function openInstalled(files: Record<string, string>): Promise<Stage> {
  const origin = await preparedOnce(JSON.stringify(files), async () => {
    const stage = await openStage()
    await stage.publish('1.0.0', files)
    const { exitCode, log } = await stage.deploy()
    if (exitCode !== 0) throw new Error(log)
    return stage
  })
  return await openStage(origin)
}

export function writeFiles(root: string, files: Record<string, string>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
}

const prepared = new Map<string, Promise<LocalStage>>()
const folders: string[] = []

process.once('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

/**
 * A closed stage of this name, from which each test of a file can open its own copy. The first test prepares the stage,
 * which is removed when the process ends.
 */
export function preparedOnce<Opened extends LocalStage>(name: string, prepare: () => Promise<Opened>): Promise<Opened> {
  const known = prepared.get(name) as Promise<Opened> | undefined
  if (known !== undefined) return known
  const stage = prepare().then(closeAndKeep)
  prepared.set(name, stage)
  return stage
}

async function closeAndKeep<Opened extends LocalStage>(stage: Opened): Promise<Opened> {
  folders.push(stage.folder)
  await stage.close(true)
  return stage
}

/**
 * A host on which these versions of greeter were deployed one after the other. After each deployment, the host wrote
 * its own files.
 */
export async function openRetainingHost(t: TestContext, versions = ['1.0.0', '2.0.0']): Promise<Stage> {
  const stage = await openStage(await preparedOnce(`a host with ${versions}`, () => deployAll(versions)))
  t.after(() => stage.close())
  return stage
}

async function deployAll(versions: readonly string[]): Promise<Stage> {
  const stage = await openStage()
  for (const version of versions) {
    await stage.publish(version, pluginFiles(version))
    const { exitCode, log } = await stage.deploy({ version })
    if (exitCode !== 0) throw new Error(log)
    writeFiles(join(stage.root, 'plugins/greeter'), { '.env': 'LANGUAGE=en\n', 'data/visitors': `${version}\n` })
  }
  return stage
}

/** Runs the rollback action, by default without a hub. */
export function rollBack(
  { workspace, root }: Pick<Stage, 'workspace' | 'root'>,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  const given = { id: 'greeter', 'project-root': root, 'host-id': 'host-1', ...inputs }
  return runAction({ action: 'rollback', workspace, ...run, inputs: given })
}

/** Runs the remove action. */
export function removePart(
  { workspace, root }: Pick<Stage, 'workspace' | 'root'>,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  const given = { id: 'greeter', 'project-root': root, 'host-id': 'host-1', ...inputs }
  return runAction({ action: 'remove', workspace, ...run, inputs: given })
}

export function installedRow({ root }: Pick<Stage, 'root'>): InstalledRow {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8')).installed[0]
}

/** A stage whose host has stand-ins for the supervisors, and a host config. */
export interface HostStage extends Stage {
  readonly standIns: StandIns
  writeHostConfig(text: string): void
  /** Deploys with the host config, and with the stand-ins first on PATH. */
  deployHere(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
}

export async function openHostStage(origin?: StageOrigin): Promise<HostStage> {
  const stage = await openStage(origin)
  const standIns = makeStandIns(join(stage.root, 'plugins/greeter/src/main.py'))
  const deployHere: HostStage['deployHere'] = (inputs = {}, run = {}) =>
    stage.deploy({ 'host-config': 'host-config.yaml', ...inputs }, { ...run, env: { PATH: standIns.path, ...run.env } })
  return {
    ...stage,
    standIns,
    deployHere,
    writeHostConfig: text => writeFileSync(join(stage.workspace.path, 'host-config.yaml'), text),
    async close(keep) {
      standIns.close()
      await stage.close(keep)
    },
  }
}

/** Opens a stage with 1.0.0 installed but not started, and 2.0.0 on the hub. */
export async function openOldHost(): Promise<HostStage> {
  return await openHostStage(await preparedOnce('an old host', prepareOld))
}

async function prepareOld(): Promise<Stage> {
  const stage = await openStage()
  await stage.publish('1.0.0', versionFiles('1.0.0'))
  const { exitCode, log } = await stage.deploy()
  if (exitCode !== 0) throw new Error(log)
  await stage.publish('2.0.0', versionFiles('2.0.0'))
  return stage
}

/** A plan that installs the plugin and then does these steps, each after the one before. */
export function planWith(...steps: string[]): string {
  const ids = ['files', ...steps.map((_, index) => `s${index + 1}`)]
  const lines = steps.map((step, index) => `  - {id: ${ids[index + 1]}, depends_on: [${ids[index]}], ${step}}\n`)
  return `${PLUGIN_PLAN}${lines.join('')}`
}

/** The files of a version for the stand-ins: they treat the text of src/main.py as the running version. */
export function versionFiles(version: string): Record<string, string> {
  return pluginFiles(version, { 'src/main.py': version, '.env.template': 'A=1\n' })
}

export const RESTART = 'action: restart, plugin: greeter'
export const RESTART_ALL = 'action: restart'
export const PROVISION = 'action: provision, plugin: greeter'
/** Shell: true if the new version was started last. */
export const IS_NEW = 'grep -q 2.0.0 running 2> /dev/null'

/** A health check step with this timeout, in seconds. If the version is broken, the step takes all of that time. */
export function healthcheck({ timeout, retries = 0 }: { timeout: number; retries?: number }): string {
  return `action: healthcheck, plugin: greeter, timeout: ${timeout}, retries: ${retries}`
}

/**
 * Shell: prints a text and hangs. A check that exits is repeated, and a busy machine could cut the last repetition
 * short.
 */
export const hangSaying = (text: string): string => `echo "${text}"; exec sleep 3600`

/**
 * A host on which 1.0.0 is installed and runs, next to a project-wide unit, and a hub with 2.0.0. The health check
 * passes only for the old version: for the new one, it hangs. The provision command fails.
 */
export async function openRunningHost(): Promise<HostStage> {
  const stage = await openOldHost()
  const { standIns } = stage
  stage.writeHostConfig(runningHostConfig(stage))
  for (const unit of ['greeter.service', 'app.service']) standIns.setState(unit, 'active')
  standIns.add('check', `if ${IS_NEW}; then ${hangSaying('still broken')}; fi; echo fine`)
  standIns.add('make-db', 'echo "no database" >&2; exit 4')
  return stage
}

export function runningHostConfig({ standIns: { bin } }: HostStage): string {
  return `version: 1
supervisor: systemd
systemd: {project_unit: app.service}
plugins: {greeter: {healthcheck: {command: [${bin}/check]}}}
provision: {greeter: {command: [${bin}/make-db], timeout: 60s}}
`
}

/** The changes that systemctl was asked for, in order. */
export function unitChanges({ standIns }: HostStage): string[] {
  return standIns.changes().flatMap(([program, ...args]) => (program === 'systemctl' ? [args.join(' ')] : []))
}
