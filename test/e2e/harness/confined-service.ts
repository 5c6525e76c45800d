import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { listTree, stampsOf } from '../../folders.ts'
import { makeStandIns } from '../../install/services/stand-ins.ts'
import { run, whyNoMounting } from './mounts.ts'
import { assertSucceeds, copyBuild } from './prepared-host.ts'
import { RECOVER } from './processes.ts'
import { openStage, planWith, RESTART, rollBack, type Stage, versionFiles } from './stage.ts'
import { asUser, GROUP, RUNNER, whyNoTwoUsers } from './two-users.ts'

/** The reason why no service can be confined here; false if one can. */
export function whyNoConfinement(): string | false {
  return whyNoTwoUsers() || whyNoMounting()
}

/** A text that only files outside the project root contain. */
export const SECRET = 'outside-the-root-6f1d'

/** Programs that no recovery and no run here needs. */
const NO_WAIT = ['--lock-timeout-seconds', '0']
const TRAPS = ['git', 'curl', 'ssh', 'nsenter', 'trap']

/** The operator's host config: its template names no service by itself. */
const BARE_CONFIG = 'version: 1\nsupervisor: systemd\nsystemd: {project_unit: app.service}\n'

/** A process that can start, or be told to act on what a confined service has planted. */
export type Actor = 'post' | 'recover' | 'recover with host config' | 'deploy' | 'roll back' | 'project'
export const ACTORS: readonly Actor[] = [
  'post',
  'recover',
  'recover with host config',
  'deploy',
  'roll back',
  'project',
]

/**
 * A host to which an unprivileged runner deploys. A service runs as the same user, but in a mount namespace in which it
 * can write only below the project root.
 */
export interface ConfinedHost {
  readonly root: string
  /** A folder of the runner's user outside the root. */
  readonly outside: string
  /** An address outside the host, at which a server counts the connections. */
  readonly address: string
  /** Runs a shell command in the project root as the service. Throws if the command fails. */
  plant(command: string, input?: string | Buffer): void
  /** Puts the root and the folder outside back to what they were before anything was planted. */
  reset(): void
  /** Has an actor work on the host, and returns what it printed. */
  act(actor: Actor, deploymentId: string): Promise<string>
  /** Everything that happened outside the root since the host was opened or reset, one line each. */
  damage(log: string): string[]
  close(): Promise<void>
}

export async function openConfinedHost(): Promise<ConfinedHost> {
  const stage = await openStage()
  const { folder, root, workspace } = stage
  const standIns = makeStandIns(join(root, 'plugins/greeter/src/main.py'))
  for (const name of TRAPS) standIns.add(name, 'exit 1')
  run('chmod', '-R', 'a+rwX', dirname(standIns.bin))
  for (const path of [folder, dirname(workspace.path)]) chmodSync(path, 0o755)
  const outside = join(folder, 'outside')
  for (const path of ['home/.ssh', 'greeter', 'units', 'empty']) mkdirSync(join(outside, path), { recursive: true })
  for (const path of ['secret', '.env', 'greeter/.env', 'greeter/plugin.yaml', 'units/x'])
    writeFileSync(join(outside, path), `KEY=${SECRET}\n`)
  run('chown', '-R', `${RUNNER}:${GROUP}`, root, workspace.path, workspace.temp, outside)
  const contacts: string[] = []
  const server = createServer(socket => {
    contacts.push('a connection to the planted address')
    socket.destroy()
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const address = `127.0.0.1:${(server.address() as { port: number }).port}`
  // Unlike /tmp, only root can change this folder.
  const safe = mkdtempSync('/var/lib/hub-deploy-test-')
  chmodSync(safe, 0o755)
  for (const path of [join(safe, 'host-config.yaml'), join(workspace.path, 'host-config.yaml')])
    writeFileSync(path, BARE_CONFIG)
  const runner = { repository: copyBuild(stage), through: asUser(RUNNER), env: { PATH: standIns.path } }
  await deployTwice(stage, runner)
  const copies = [root, outside].map(path => ({ path, copy: `${path}-before` }))
  for (const { path, copy } of copies) run('cp', '-a', path, copy)
  let known = { calls: 0, stamps: '' }
  const note = (): void => {
    contacts.length = 0
    known = { calls: standIns.calls().length, stamps: JSON.stringify(stampsOf(outside)) }
  }
  note()
  const recover = (...options: string[]): string => {
    const program = join(runner.repository, 'dist', RECOVER.split('/').at(-1) ?? '')
    const [setpriv, ...as] = asUser(RUNNER)
    const command = [...as, process.execPath, program, '--project-root', root, ...NO_WAIT, ...options]
    const { stdout, stderr } = spawnSync(setpriv, command, { encoding: 'utf8', cwd: '/', env: runner.env })
    return stdout + stderr
  }
  // A planted lock may name a holder on another host, for which every run waits.
  const config = { 'host-config': 'host-config.yaml', 'lock-timeout-seconds': '0' }
  const hubless = { 'hub-url': 'http://127.0.0.1:9', devkey: 'd', 'project-id': 'shop' }
  const actors: Record<Actor, (deploymentId: string) => Promise<ActionResult | string>> = {
    post: id => stage.deploy(config, { ...runner, phase: 'post', state: { 'deployment-id': id } }),
    recover: async () => recover(),
    'recover with host config': async () => recover('--host-config', join(safe, 'host-config.yaml')),
    deploy: () => stage.deploy({ ...config, version: '2.0.0' }, runner),
    'roll back': () => rollBack(stage, config, runner),
    project: () => stage.deploy({ ...config, ...hubless }, { ...runner, action: 'project' }),
  }
  return {
    root,
    outside,
    address,
    plant: (command, input = '') => asService(root, command, input),
    reset() {
      for (const { path, copy } of copies) {
        rmSync(path, { recursive: true })
        run('cp', '-a', copy, path)
      }
      note()
    },
    async act(actor, deploymentId) {
      const result = await actors[actor](deploymentId)
      return typeof result === 'string' ? result : JSON.stringify(result)
    },
    damage: log => [
      ...standIns
        .calls()
        .slice(known.calls)
        .map(call => call.join(' '))
        .filter(call => !/^systemctl .*\b(?:greeter|app)\.service$/.test(call)),
      ...contacts,
      ...(JSON.stringify(stampsOf(outside)) === known.stamps ? [] : ['a change outside the root']),
      ...(log.includes(SECRET) ? ['a secret in the log'] : []),
      ...(JSON.stringify(listTree(root)).includes(SECRET) ? ['a secret in the root'] : []),
    ],
    async close() {
      server.close()
      standIns.close()
      rmSync(safe, { recursive: true })
      await stage.close()
    },
  }
}

async function deployTwice(stage: Stage, runner: Partial<ActionRun>): Promise<void> {
  for (const version of ['0.9.0', '1.0.0', '2.0.0']) await stage.publish(version, versionFiles(version))
  stage.writePlan(planWith(RESTART))
  const config = { 'host-config': 'host-config.yaml' }
  for (const version of ['0.9.0', '1.0.0']) assertSucceeds(await stage.deploy({ ...config, version }, runner))
}

/** Makes every mount read-only in a namespace of its own, except the project root, and then gives up root's rights. */
const CONFINE = `
mount --make-rprivate /
mount --bind "$1" "$1"
cut -d' ' -f5 /proc/self/mountinfo | grep -vxF "$1" | while read -r at; do mount -o remount,bind,ro "$at" || :; done
cd "$1"
shift
exec "$@"
`

function asService(root: string, command: string, input: string | Buffer): void {
  const args = ['--mount', 'sh', '-c', CONFINE, 'sh', root, ...asUser(RUNNER), 'sh', '-ec', command]
  const { status, stderr } = spawnSync('unshare', args, { input, encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command}: ${stderr}`)
}
