import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import { makeStandIns } from '../../install/services/stand-ins.ts'
import { copyBuild, copyHost, type HostCopy, type HostOrigin } from './prepared-host.ts'
import { filesWith, openProjectStage, PROJECT_ID } from './project-stage.ts'
import { openStage, planWith, pluginFiles, writeFiles } from './stage.ts'

/** A run that rolls back, and copies of the host that it runs on. The last step of its plan fails. */
export interface Scene {
  readonly name: SceneName
  copy(name: string, root?: string): SceneHost
  close(): Promise<void>
}

export interface SceneHost {
  readonly root: string
  /** A file that exists as soon as the last step has failed, or the run was killed. */
  readonly armed: string
  /** The run that rolls back. For a recovery, the post step of a run that was killed. */
  rollBack(env?: Record<string, string>): Promise<ActionResult>
  /** The post step of that run. */
  post(main: ActionResult, env?: Record<string, string>): Promise<ActionResult>
  /** Runs `recover.js`. Returns its output. */
  recover(): Promise<string>
  /** The next run, whose last step succeeds. */
  next(): Promise<ActionResult>
  /** What is wrong with the service once the old version is back; undefined if nothing is. */
  whyServiceIsNotOld(): string | undefined
  close(): void
}

const KINDS = {
  'an update': prepareUpdate,
  'a first install': prepareFirstInstall,
  'a project': prepareProject,
  'a rollback': prepareRollback,
  'the recovery of a killed update': prepareUpdate,
} as const
type Kind = keyof typeof KINDS
export type SceneName = Kind | `${Kind} with a service`

export const SCENES = (Object.keys(KINDS) as Kind[]).flatMap((kind): SceneName[] => [kind, `${kind} with a service`])

/** A host on which a part with one service can be replaced. */
interface Prepared {
  readonly origin: HostOrigin
  /** Runs the plan on a copy of the host. */
  run(host: HostCopy, run: Partial<ActionRun>): Promise<ActionResult>
  /** The id of the part, and a file of it whose text is the version that runs. */
  readonly part: string
  readonly versionFile: string
  close(): Promise<void>
}

export async function openScene(name: SceneName): Promise<Scene> {
  const kind = name.replace(' with a service', '') as Kind
  const isServed = name !== kind
  const prepared = await KINDS[kind](isServed)
  const isRecovery = kind === 'the recovery of a killed update'
  return {
    name,
    copy: (id, root) => copyScene(prepared, { id, root, isServed, isRecovery }),
    close: prepared.close,
  }
}

interface Copied {
  readonly id: string
  readonly root: string | undefined
  readonly isServed: boolean
  readonly isRecovery: boolean
}

function copyScene(prepared: Prepared, { id, root, isServed, isRecovery }: Copied): SceneHost {
  const { origin, part, versionFile } = prepared
  const host = root === undefined ? copyHost(origin, id) : copyHost(origin, id, root)
  const standIns = makeStandIns(join(host.root, versionFile))
  const armed = join(host.workspace.temp, 'armed')
  const unit = `${part}.service`
  const before = tryRead(join(host.root, versionFile))
  if (isServed && before !== undefined) standIns.setState(unit, 'active')
  const fail = isRecovery ? 'kill -9 $PPID; sleep 5' : 'exit 1'
  const config = {
    version: 1,
    ...(isServed && {
      supervisor: 'systemd',
      systemd: { unit: 'scene-{id}.service' },
      plugins: { [part]: { unit, healthcheck: { command: ['true'] } } },
    }),
    provision: { [part]: { command: ['/bin/sh', '-c', `[ ! -e ${armed}.not ] || exit 0; touch ${armed}; ${fail}`] } },
  }
  writeFileSync(join(host.workspace.path, 'host.yaml'), JSON.stringify(config))
  // The first run that succeeds keeps the compiled code for the others, which saves a sixth of their time.
  const own = { PATH: standIns.path, XDG_CACHE_HOME: join(origin.stage.folder, 'cache') }
  const withPath = (env: Record<string, string> = {}) => ({ env: { ...own, ...env } })
  const run = (more: Partial<ActionRun>) => prepared.run(host, more)
  let killed: ActionResult | undefined
  return {
    root: host.root,
    armed,
    async rollBack(env) {
      if (!isRecovery) return await run(withPath(env))
      killed = await run(withPath())
      return await run({ ...withPath(env), phase: 'post', state: killed.state })
    },
    post: (main, env) => run({ ...withPath(env), phase: 'post', state: (killed ?? main).state }),
    async recover() {
      const program = join(origin.repository, 'dist/recover.js')
      const child = spawn(process.execPath, [program, '--project-root', host.root], { cwd: '/' })
      return (await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])).slice(0, 2).join('')
    },
    next() {
      writeFileSync(`${armed}.not`, '')
      return run(withPath())
    },
    whyServiceIsNotOld() {
      if (!isServed) return undefined
      const state = standIns.stateOf(unit)
      if (before === undefined) return state === 'active' ? `${unit} still runs` : undefined
      if (state !== 'active') return `${unit} does not run`
      return standIns.running() === before ? undefined : `${unit} runs ${standIns.running()}`
    },
    close() {
      standIns.close()
      for (const path of [host.root, dirname(host.workspace.path)]) rmSync(path, { recursive: true, force: true })
    },
  }
}

function tryRead(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

/** The steps that follow the switch. The last one fails. */
function stepsFor(part: string, isServed: boolean, before: readonly string[] = []): string[] {
  const served = [`action: restart, plugin: ${part}`, `action: healthcheck, plugin: ${part}, timeout: 10`]
  return [...before, ...(isServed ? served : []), `action: provision, plugin: ${part}`]
}

const WRITE_ENV = 'action: write_env, plugin: greeter, from: plugins/greeter/.env.template'

function greeterFiles(version: string): Record<string, string> {
  const settings = { '.env.template': 'A=1\n', 'src/main.py': version, 'docs/guide.md': `Guide of ${version}\n` }
  return pluginFiles(version, settings)
}

const GREETER = { part: 'greeter', versionFile: 'plugins/greeter/src/main.py' }

async function prepareFirstInstall(isServed: boolean): Promise<Prepared> {
  return await prepareGreeter(isServed, [])
}

async function prepareUpdate(isServed: boolean): Promise<Prepared> {
  return await prepareGreeter(isServed, ['1.0.0'])
}

/** A host with these versions of greeter, on which 2.0.0 is to be installed. */
async function prepareGreeter(isServed: boolean, installed: readonly string[]): Promise<Prepared> {
  const stage = await openStage()
  const repository = copyBuild(stage)
  for (const version of [...installed, '2.0.0']) await stage.publish(version, greeterFiles(version))
  for (const version of installed) await succeed(stage.deploy({ version }, { repository }))
  if (installed.length > 0)
    writeFiles(join(stage.root, 'plugins/greeter'), { 'data/visitors': '17\n', '.env': 'LANGUAGE=en\n' })
  const inputs = { version: '2.0.0', 'host-config': 'host.yaml' }
  const plan = planWith(...stepsFor('greeter', isServed, [WRITE_ENV]))
  const origin = { stage, repository, root: stage.root, plan, inputs }
  return { origin, ...GREETER, run: (host, run) => host.deploy({}, run), close: () => stage.close() }
}

/** A host with greeter 2.0.0, on which 1.0.0 is to be restored. */
async function prepareRollback(isServed: boolean): Promise<Prepared> {
  const { origin, close } = await prepareGreeter(isServed, ['1.0.0', '2.0.0'])
  const plan = planWith(...stepsFor('greeter', isServed))
  const run: Prepared['run'] = (host, more) =>
    runAction({
      action: 'rollback',
      repository: origin.repository,
      workspace: host.workspace,
      ...more,
      inputs: {
        ...{ id: 'greeter', 'project-root': host.root, 'host-id': host.name },
        ...{ 'host-config': 'host.yaml', 'install-plan': 'install.yaml' },
      },
    })
  return { origin: { ...origin, plan }, ...GREETER, run, close }
}

/** A host with the parts cart and mailer, on which cart is to be replaced, till installed and mailer removed. */
async function prepareProject(isServed: boolean): Promise<Prepared> {
  const stage = await openProjectStage()
  const repository = copyBuild(stage)
  const more = (version: string) => ({ 'plugins/cart/src/main.py': version })
  await stage.publish('1.0.0', filesWith('1.0.0', { included: ['cart', 'mailer'], more: more('1.0.0') }))
  const steps = stepsFor('cart', isServed)
  await stage.publish('2.0.0', filesWith('2.0.0', { included: ['cart', 'till'], steps, more: more('2.0.0') }))
  await succeed(stage.deploy({ version: '1.0.0' }, { repository }))
  writeFiles(stage.root, { 'plugins/cart/data/orders': '17\n', 'extensions/mailer/data/queue': '17 letters\n' })
  const inputs = { version: '2.0.0', 'host-config': 'host.yaml', 'project-id': PROJECT_ID }
  return {
    origin: { stage, repository, root: stage.root, inputs },
    part: 'cart',
    versionFile: 'plugins/cart/src/main.py',
    run: (host, run) => host.deploy({}, run),
    close: () => stage.close(),
  }
}

async function succeed(run: Promise<ActionResult>): Promise<void> {
  const { exitCode, log } = await run
  if (exitCode !== 0) throw new Error(log)
}
