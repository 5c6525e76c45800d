import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { readOwnIdentity } from '../../../src/install/host/process-identity.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { waitUntil } from '../../clocks.ts'
import { byExtent, sampled, whyRightsAreLeftToCi } from '../../extent.ts'
import { assertNothingStrays } from '../harness/evidence.ts'
import { assertSucceeds, type Fleet, openFleet, type PreparedHost } from '../harness/prepared-host.ts'
import { isNoted, NOTE_PID, readHolder, readPid, standIn } from '../harness/processes.ts'
import { pluginFiles } from '../harness/stage.ts'

const RUNS_AT_ONCE = 8
const ROUNDS = byExtent({ sample: 1, ci: 8 })
const HOLDER = {
  id: '00000000-0000-4000-8000-000000000000',
  kernel_lock: null,
  run_url: 'https://code-host.example/run/7',
  deployment: null,
  since: 'noon',
}

/** Runs another command in a new pid namespace, as in a container. */
const CONTAINER = ['unshare', '--pid', '--mount-proc', '--kill-child']

describe('the lock of a host', () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
  })
  after(() => fleet.close())

  it(`makes ${RUNS_AT_ONCE} runs that start at once deploy one after the other, ${ROUNDS} times`, async () => {
    for (let round = 1; round <= ROUNDS; round++) {
      const host = fleet.newHost(`round-${round}`)
      if (round % 2 === 0) rmSync(host.root, { recursive: true })
      await assertOneAfterTheOther(host)
    }
  })

  const own = readOwnIdentity()
  const abandoned: Record<string, () => string> = {
    'a process that has ended': () => lockOf({ ...own, pid: spawnSync('true').pid }),
    'an earlier process whose pid has been reused': () => lockOf({ ...own, start_time: '1' }),
    'a process from before the last boot': () => lockOf({ ...own, boot_id: 'another' }),
    'no process (an empty file)': () => '',
    'no process (garbage)': () => '{"pid": "many"',
  }
  for (const [whose, content] of sampled(Object.entries(abandoned), 2)) {
    const skip = whose.includes('boot') && own.machine_id === null && 'this machine has no machine id'
    it(`of ${whose} is taken over at once`, { skip }, async () => {
      const host = fleet.newHost(`of ${whose}`)
      writeFileSync(join(host.root, '.hub-deploy/lock'), content())
      assertSucceeds(await host.deploy({ 'lock-timeout-seconds': '0' }))
      assertNothingStrays(host.root)
    })
  }

  const held: Record<string, () => string> = {
    'a running process': () => lockOf(own),
    'a process on another host': () => lockOf({ ...own, hostname: 'elsewhere', pid: spawnSync('true').pid }),
  }
  for (const [whose, content] of sampled(Object.entries(held), 1)) {
    it(`of ${whose} is waited for and left untouched`, async () => {
      const host = fleet.newHost(`of ${whose}`)
      const path = join(host.root, '.hub-deploy/lock')
      const text = content()
      writeFileSync(path, text)
      const { outputs, log } = await host.deploy({ 'lock-timeout-seconds': '1' })
      assert.deepEqual([outputs['outcome'], outputs['error-code'], outputs['state']], ['failed', 'locked', 'pending'])
      assert.ok(log.includes(HOLDER.run_url))
      assert.equal(readFileSync(path, 'utf8'), text)
      assert.deepEqual(host.tree(), fleet.old)
      assert.deepEqual(host.reported(), ['failed'])
    })
  }

  it('of a suspended run is waited for, and still belongs to that run when it resumes', async t => {
    const host = fleet.newHost('stopped')
    const path = standIn(t, 'sync', 'kill -STOP $PPID')
    const first = host.deploy({}, { env: { PATH: path } })
    await waitUntil('the run is suspended', () => isSuspended(host.root))
    const pid = readHolder(host.root)
    const second = await host.deploy({ 'lock-timeout-seconds': '1' })
    process.kill(pid, 'SIGCONT')
    assert.equal(second.outputs['error-code'], 'locked')
    assert.equal(second.log.split(`Waiting for the lock of this host: process ${pid} `).length, 2, second.log)
    assertSucceeds(await first)
    assert.deepEqual(host.tree(), fleet.new)
    assertNothingStrays(host.root)
  })

  for (const next of ['deploy', 'post'] as const) {
    it(`of a container that was killed and replaced does not hinder the ${next} step`, {
      skip: whyNoContainers(),
    }, async t => {
      const host = fleet.newHost(`container ${next}`)
      const path = join(host.root, '.hub-deploy/lock')
      const inputs = { 'lock-timeout-seconds': '60' }
      const started = Promise.withResolvers<number>()
      const env = { PATH: standIn(t, 'sync', `${NOTE_PID}; exec sleep 3600`) }
      const killed = host.deploy(inputs, { through: CONTAINER, onStart: started.resolve, env })
      await waitUntil('the host is locked and everything is staged', () => isNoted(env.PATH))
      process.kill(await started.promise, 'SIGKILL')
      await killed
      assert.equal(JSON.parse(readFileSync(path, 'utf8')).pid, 1)
      // The command that starts a container may end a moment before the processes in it, so the next run may have to
      // wait for the lock.
      const { exitCode, log } = await host[next](inputs, { through: CONTAINER })
      assert.equal(exitCode, 0, log)
      assert.deepEqual(host.tree(), next === 'deploy' ? fleet.new : fleet.old)
      assertNothingStrays(host.root)
    })
  }

  it('of a run that was killed is not kept by a process that the run has left behind', async () => {
    const host = fleet.newHost('daemon')
    const pidFile = join(host.workspace.path, 'pid')
    const daemon = `sleep 600 >/dev/null 2>&1 & echo $! > ${pidFile}; kill -9 $PPID; wait`
    const config = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', daemon] } } }
    const plan = join(host.workspace.path, 'install.yaml')
    writeFileSync(join(host.workspace.path, 'host.yaml'), JSON.stringify(config))
    const before = readFileSync(plan, 'utf8')
    writeFileSync(plan, `${before}  - {id: last, depends_on: [files], action: provision, plugin: greeter}\n`)
    const { signal } = await host.deploy({ 'host-config': 'host.yaml' })
    assert.equal(signal, 'SIGKILL')
    writeFileSync(plan, before)
    assertSucceeds(await host.deploy({ 'lock-timeout-seconds': '0' }))
    process.kill(readPid(pidFile), 'SIGKILL')
    assertNothingStrays(host.root)
  })
})

/** The run may be about to write the lock's file. */
function isSuspended(root: string): boolean {
  const lock = join(root, '.hub-deploy/lock')
  const isWritten = existsSync(lock) && readFileSync(lock, 'utf8').endsWith('\n')
  return isWritten && /^State:\tT/m.test(readFileSync(`/proc/${readHolder(root)}/status`, 'utf8'))
}

function whyNoContainers(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  const [program = '', ...args] = CONTAINER
  return spawnSync(program, [...args, 'true']).status === 0
    ? false
    : 'needs root and the permission to create namespaces'
}

function lockOf(identity: Awaited<ReturnType<typeof readOwnIdentity>>): string {
  return `${JSON.stringify({ ...HOLDER, ...identity })}\n`
}

async function assertOneAfterTheOther(host: PreparedHost): Promise<void> {
  const versions = Array.from({ length: RUNS_AT_ONCE }, (_, index) => (index % 2 === 0 ? '1.0.0' : '2.0.0'))
  const results = await Promise.all(versions.map(version => host.deploy({ version })))
  for (const result of results) assertSucceeds(result)
  const reports = host.localReports().sort((a, b) => a.completed_at.localeCompare(b.completed_at))
  assert.equal(reports.length, RUNS_AT_ONCE)
  assertDisjoint(reports)
  const last = reports.at(-1)?.version ?? ''
  assert.equal(host.tree()['greeter/src/main.py'], `644 ${pluginFiles(last)['src/main.py']}`)
  assert.equal(host.reported().length, RUNS_AT_ONCE)
  assertNothingStrays(host.root)
}

/** Asserts that each run extracted only after the previous run had ended. */
function assertDisjoint(reports: readonly LocalReport[]): void {
  for (const [index, report] of reports.entries()) {
    const earlier = reports[index - 1]
    const begun = report.states.find(({ state }) => state === 'extracting')?.at ?? ''
    if (earlier !== undefined)
      assert.ok(
        begun >= earlier.completed_at,
        `a run extracted at ${begun}, before the previous run had ended at ${earlier.completed_at}`,
      )
  }
}
