import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { Outcome } from '../../../src/core/state-machine.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { serve } from '../../net/loopback-server.ts'
import { type Asked, type CancelScene, type Contract, HANG, HANG_ON, isHanging } from './cancel-scene.ts'

/** Shell: the first restart after the cancelled step hangs and ignores SIGTERM. */
const HANG_ONCE = `if [ -e here ] && [ ! -e again ]; then touch again; trap '' TERM; while :; do sleep 1; done; fi`

/** True if a run whose log is this one so far has reached the moment at which the test cancels it. */
export type IsThere = (log: string) => boolean

/** The moment at which a run is cancelled, and the required result. */
export interface Moment {
  readonly name: string
  /** The contracts in which this moment occurs; default both. */
  readonly contracts?: readonly Contract[]
  arrange(scene: CancelScene, t: TestContext): Promise<IsThere>
  readonly outcome: Outcome
  /** The error code: default `cancelled`; empty for none. */
  readonly error?: string
  /** Set if the report does not reach the hub during the run. The post step or a later run then sends the report. */
  readonly isUnreported?: true
  /** Set if the services are left to the post step. */
  readonly isUnfinished?: true
  /** The old version's health in the local report, once the post step has completed that report; default null. */
  readonly healthy?: boolean
  /** The version and status in the report that the hub gets about an earlier run, which this run recovers. */
  readonly recovered?: string
}

type Arrange = (scene: CancelScene, script: string) => Promise<void>

/** A run that waits for the answer to a request that the hub never answers. */
function asks(asked: Asked, ...contracts: Contract[]): Moment {
  return {
    name: `waits for the hub (${asked})`,
    contracts,
    outcome: 'failed',
    async arrange(scene) {
      await publish(scene)
      scene.unanswered.add(asked)
      return () => scene.left.includes(asked)
    },
  }
}

/** Two moments: a run whose child hangs, and a run whose child also ignores SIGTERM. */
function inChild(name: string, arrange: Arrange, more: Partial<Moment> = {}): Moment[] {
  return [
    { name, ...stopped(arrange, HANG), ...more },
    { name: `${name} (the child ignores SIGTERM)`, ...stopped(arrange, HANG_ON), ...more },
  ]
}

function stopped(arrange: Arrange, script: string): Pick<Moment, 'outcome' | 'arrange'> {
  return {
    outcome: 'rolled_back',
    async arrange(scene) {
      await arrange(scene, script)
      return () => isHanging(scene)
    },
  }
}

/** Publishes 2.0.0 with these steps for the scene's part. */
export async function publishSteps(
  scene: CancelScene,
  ...names: ('restart' | 'provision' | 'healthcheck')[]
): Promise<void> {
  const steps = { restart, provision, healthcheck: () => healthcheck(scene, 8) }
  await publish(scene, ...names.map(name => steps[name](scene)))
}

async function publish(scene: CancelScene, ...steps: string[]): Promise<void> {
  const { id, standIns } = scene
  const run = (name: string): string => `{command: [${standIns.bin}/${name}], timeout: 60s}`
  await scene.publish(...steps)
  scene.configure(
    `healthcheck: {command: [${standIns.bin}/check]}`,
    `provision: {${id}: ${run('make-db')}}\nnotify: {done: ${run('tell')}}\n`,
  )
}

const restart = ({ id }: CancelScene): string => `action: restart, plugin: ${id}`
const provision = ({ id }: CancelScene): string => `action: provision, plugin: ${id}`
const healthcheck = ({ id }: CancelScene, timeout = 60): string =>
  `action: healthcheck, plugin: ${id}, timeout: ${timeout}`
/** Shell: runs the script, which hangs, only in the first call, so not in the call of the rollback. */
const once = (script: string): string => `if [ ! -e here ]; then ${script}; fi`
/** Shell: true if the new version was started last. */
const IS_NEW = 'grep -q 2.0.0 running 2> /dev/null'
const IS_OLD = 'grep -q 1.0.0 running 2> /dev/null'

function supervise(action: 'start' | 'stop' | 'restart' | 'is-active'): Moment[] {
  return inChild(`waits for the supervisor (${action})`, async (scene, script) => {
    await publish(scene, `action: ${action === 'is-active' ? 'restart' : action}, plugin: ${scene.id}`)
    scene.standIns.before('systemctl', action, once(script))
  })
}

/** Leaves a run that was killed in its health check. The next run is cancelled while it recovers the dead run. */
async function leaveDeadRun(scene: CancelScene): Promise<void> {
  await publish(scene, restart(scene), healthcheck(scene))
  scene.standIns.add('check', `if ${IS_NEW}; then kill -9 $PPID; fi; echo fine`)
  await scene.run()
}

export const MOMENTS: readonly Moment[] = [
  {
    name: 'waits for the lock',
    outcome: 'failed',
    async arrange(scene, t) {
      await publish(scene)
      const path = join(scene.root, '.hub-deploy/lock')
      const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
      t.after(() => lock.release())
      return log => log.includes('Waiting for the lock')
    },
  },
  {
    name: 'sends a report that waits in the outbox',
    outcome: 'success',
    error: '',
    isUnreported: true,
    async arrange(scene) {
      await publish(scene)
      keepFirstReportInOutbox(scene)
      scene.unanswered.add('report')
      return () => scene.left.includes('report')
    },
  },
  // Without a token, the run cannot report either.
  { ...asks('auth', 'project'), isUnreported: true },
  asks('latest', 'marketplace', 'project'),
  asks('artifact', 'project'),
  asks('download', 'marketplace', 'project'),
  asks('authorize', 'project'),
  {
    name: 'extracts 6,000 files',
    outcome: 'failed',
    async arrange(scene) {
      await publish(scene)
      await scene.publishLarge(6000)
      return () => scene.outputsSoFar().includes('\nextracting\n')
    },
  },
  ...inChild(
    'makes the new files durable',
    async (scene, script) => {
      await publish(scene)
      scene.standIns.add('sync', script)
    },
    { outcome: 'failed' },
  ),
  ...supervise('start'),
  ...supervise('stop'),
  ...supervise('restart'),
  ...supervise('is-active').map(moment => ({ ...moment, outcome: 'rolled_back' as const })),
  ...inChild(
    'provisions',
    async (scene, script) => {
      await publish(scene, restart(scene), provision(scene), healthcheck(scene))
      scene.standIns.add('make-db', script)
    },
    { healthy: true },
  ),
  ...inChild(
    'checks health (command)',
    async (scene, script) => {
      await publish(scene, restart(scene), healthcheck(scene))
      scene.standIns.add('check', `if ${IS_NEW}; then ${script}; fi; echo fine`)
    },
    { healthy: true },
  ),
  {
    name: 'checks health (http)',
    outcome: 'rolled_back',
    healthy: true,
    async arrange(scene, t) {
      let asked = 0
      const { url } = await serve(t, (_, response) => {
        if (scene.standIns.running()?.includes('2.0.0') !== true) return void response.end('fine')
        asked++
      })
      await scene.publish(restart(scene), healthcheck(scene))
      scene.configure(`healthcheck: {http: "${url}"}`)
      return () => asked > 0
    },
  },
  {
    name: 'checks health (tcp)',
    outcome: 'rolled_back',
    healthy: false,
    async arrange(scene) {
      await scene.publish(restart(scene), healthcheck(scene, 8))
      scene.configure('healthcheck: {tcp: "127.0.0.1:1"}')
      return () =>
        scene.standIns.running()?.includes('2.0.0') === true && scene.outputsSoFar().includes('\nhealthchecking\n')
    },
  },
  ...inChild(
    'notifies',
    async (scene, script) => {
      await publish(scene, restart(scene), healthcheck(scene), 'action: notify, event: done')
      scene.standIns.add('tell', script)
    },
    { healthy: true },
  ),
  {
    name: 'checks the old version after a failure',
    outcome: 'rolled_back',
    error: 'unhealthy',
    healthy: true,
    async arrange(scene) {
      await publish(scene, restart(scene), healthcheck(scene, 8))
      scene.standIns.add('check', `if ${IS_NEW}; then exit 1; fi; if [ ! -e here ]; then ${HANG}; fi; echo fine`)
      return () => isHanging(scene)
    },
  },
  ...inChild(
    'restarts the old version after a failure',
    async (scene, script) => {
      await publish(scene, restart(scene), provision(scene))
      scene.standIns.add('make-db', 'exit 4')
      scene.standIns.before('systemctl', 'restart', `if ${IS_NEW}; then ${once(script)}; fi`)
    },
    { error: 'step_failed', healthy: true, isUnfinished: true },
  ),
  {
    name: 'recovers a dead run and checks the old version',
    outcome: 'failed',
    recovered: '2.0.0 rolled_back',
    isUnfinished: true,
    async arrange(scene) {
      await leaveDeadRun(scene)
      scene.standIns.add('check', `if ${IS_OLD}; then ${once(HANG)}; fi; echo fine`)
      return () => isHanging(scene)
    },
  },
  ...inChild(
    'recovers a dead run and restarts its service',
    async (scene, script) => {
      await leaveDeadRun(scene)
      scene.standIns.add('check', 'echo fine')
      scene.standIns.before('systemctl', 'restart', once(script))
    },
    { outcome: 'failed', recovered: '2.0.0 rolled_back', isUnfinished: true },
  ),
  {
    name: 'waits for the hub to accept the report of its success',
    outcome: 'success',
    error: '',
    isUnreported: true,
    async arrange(scene) {
      await publish(scene, restart(scene), healthcheck(scene))
      scene.unanswered.add('report')
      return () => scene.left.includes('report')
    },
  },
  ...inChild(
    'provisions while the hub does not answer',
    async (scene, script) => {
      await publish(scene, restart(scene), provision(scene), healthcheck(scene))
      scene.standIns.add('make-db', script)
      scene.unanswered.add('report')
    },
    { healthy: true, isUnreported: true },
  ),
  ...inChild(
    'provisions while no service restarts',
    async (scene, script) => {
      await publish(scene, restart(scene), provision(scene), healthcheck(scene))
      scene.standIns.add('make-db', script)
      scene.standIns.before('systemctl', 'restart', HANG_ONCE)
    },
    { healthy: true, isUnfinished: true },
  ),
  ...inChild(
    'provisions while no service restarts and the hub does not answer',
    async (scene, script) => {
      await publish(scene, restart(scene), provision(scene), healthcheck(scene))
      scene.standIns.add('make-db', script)
      scene.standIns.before('systemctl', 'restart', HANG_ONCE)
      scene.unanswered.add('report')
    },
    { healthy: true, isUnfinished: true, isUnreported: true },
  ),
]

/** Makes the report of the first version look as if the hub had not accepted it. */
function keepFirstReportInOutbox({ root, address }: CancelScene): void {
  const [name] = readdirSync(join(root, '.hub-deploy/reports'))
  const report = JSON.parse(readFileSync(join(root, '.hub-deploy/reports', name as string), 'utf8'))
  report.reported = { accepted: false, attempts: 1, error: 'not sent' }
  writeFileSync(join(root, '.hub-deploy/reports', name as string), JSON.stringify(report))
  const entry = JSON.stringify({ schema: 1, address, report })
  writeFileSync(join(root, '.hub-deploy/outbox', name as string), entry, { mode: 0o600 })
}
