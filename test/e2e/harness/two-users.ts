import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { whyRightsAreLeftToCi } from '../../extent.ts'
import { run } from './mounts.ts'
import { assertSucceeds, copyBuild } from './prepared-host.ts'
import { healthcheck, openStage, planWith, pluginFiles, type Stage } from './stage.ts'

/** The ids of two users and of their common group. None of these ids needs a name on the machine. */
export const RUNNER = 54_001
const INTRUDER = 54_002
export const GROUP = 54_000

/** The reason why no program can run as another user here; false if one can. */
export function whyNoTwoUsers(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  if (process.getuid?.() !== 0) return 'needs root to work as two other users'
  const [program, ...args] = asUser(RUNNER)
  const { status, error } = spawnSync(program, [...args, process.execPath, '-e', ''], { cwd: '/' })
  if (error !== undefined) return `setpriv is not installed (${error.message})`
  return status === 0 ? false : 'another user cannot run the node of this checkout'
}

/**
 * A host to which the runner's user deploys, and on which another user works, too. An update was killed in its health
 * check. Recovering that update would move files and repeat the check.
 */
export interface TwoUsers extends Stage {
  /** The intruder's own folder. */
  readonly lair: string
  /** True if the health check has run since the update was killed. */
  hasRun(): boolean
  /** Deploys as the runner's user. */
  deployAsRunner(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  /** Runs a shell command in the project root as the intruder. */
  intrude(command: string): void
  /** Runs a shell command in the project root as the runner's user, as an operator may. */
  operate(command: string): void
  /** Gives a file or folder, with its content, to the intruder. */
  handOver(path: string): void
}

export async function openTwoUsers(): Promise<TwoUsers> {
  const stage = await openStage()
  try {
    return await admitUsers(stage)
  } catch (error) {
    await stage.close()
    throw error
  }
}

async function admitUsers(stage: Stage): Promise<TwoUsers> {
  const { folder, root, workspace } = stage
  const lair = join(folder, 'lair')
  mkdirSync(lair)
  for (const path of [folder, dirname(workspace.path)]) chmodSync(path, 0o755)
  for (const path of [root, workspace.path, workspace.temp]) chownSync(path, RUNNER, GROUP)
  chownSync(lair, INTRUDER, GROUP)
  chmodSync(lair, 0o777)
  const repository = copyBuild(stage)
  const trace = join(lair, 'trace')
  const users: TwoUsers = {
    ...stage,
    lair,
    hasRun: () => existsSync(trace),
    deployAsRunner: (inputs = {}, run = {}) =>
      stage.deploy({ 'host-config': 'host.yaml', ...inputs }, { repository, through: asUser(RUNNER), ...run }),
    intrude: command => runAs(INTRUDER, command, root),
    operate: command => runAs(RUNNER, command, root),
    handOver: path => run('chown', '-hR', `${INTRUDER}:${GROUP}`, path),
  }
  await interruptUpdate(users, trace)
  return users
}

async function interruptUpdate(stage: TwoUsers, trace: string): Promise<void> {
  const killOnce = `touch ${trace}; [ -e ${trace}.once ] || { touch ${trace}.once; kill -9 $PPID; }`
  const config = { version: 1, plugins: { greeter: { healthcheck: { command: ['/bin/sh', '-c', killOnce] } } } }
  writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
  for (const version of ['1.0.0', '2.0.0']) await stage.publish(version, pluginFiles(version))
  assertSucceeds(await stage.deployAsRunner({ version: '1.0.0' }))
  stage.writePlan(planWith(healthcheck({ timeout: 20 })))
  const { signal, log } = await stage.deployAsRunner()
  assert.equal(signal, 'SIGKILL', log)
  rmSync(trace)
}

/** The command that runs another command as a user. */
export function asUser(uid: number): [string, ...string[]] {
  return ['setpriv', `--reuid=${uid}`, `--regid=${GROUP}`, '--clear-groups']
}

function runAs(uid: number, command: string, cwd: string): void {
  const [program, ...args] = asUser(uid)
  const { status, stderr } = spawnSync(program, [...args, 'sh', '-ec', command], { cwd, encoding: 'utf8' })
  if (status !== 0) throw new Error(`${command}: ${stderr}`)
}
