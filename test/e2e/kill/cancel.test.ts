import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import type { Outcome } from '../../../src/core/state-machine.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { waitUntil } from '../../clocks.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { assertNothingStrays, commandsIn } from '../harness/evidence.ts'
import { assertSucceeds, type Fleet, openFleet, type PreparedHost } from '../harness/prepared-host.ts'
import {
  AWAIT_PID,
  isRunning,
  killAsTheRunnerDoes,
  NOTE_PID,
  onceInLog,
  readHolder,
  readNotedPid,
  standIn,
  waitForEnd,
} from '../harness/processes.ts'
import { cancelBefore, cancelBeforeAndBlockUndo } from '../harness/stops.ts'
import { whyNoStrace } from '../harness/strace.ts'
import { forEver, openGate } from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()
const SIGNAL_AT_FILE = join(import.meta.dirname, '../harness/signal-at-file.mjs')

/**
 * The journal records at which a run is cancelled. The run may continue for a while before it notices the signal, but
 * its outcome must not vary.
 */
const MOMENTS: readonly { at: string; outcome: Outcome }[] = [
  { at: 'state fetching', outcome: 'failed' },
  { at: 'state verifying_signature', outcome: 'failed' },
  { at: 'state extracting', outcome: 'failed' },
  { at: 'state loading_plan', outcome: 'failed' },
  { at: 'state resolving_sequence', outcome: 'failed' },
  { at: 'state installing', outcome: 'failed' },
  { at: 'change .hub-deploy/snapshots/plugins/greeter/2-1.0.0', outcome: 'rolled_back' },
  { at: 'change plugins/greeter', outcome: 'rolled_back' },
  { at: 'step files', outcome: 'rolled_back' },
  { at: 'change plugins/greeter.env', outcome: 'rolled_back' },
  { at: 'state healthchecking', outcome: 'rolled_back' },
  { at: 'commit', outcome: 'success' },
  { at: 'state succeeded', outcome: 'success' },
  { at: 'end', outcome: 'success' },
]

/** True if a run that was refused for its inputs has set its outputs. */
function hasRefusal({ workspace: { temp } }: PreparedHost): boolean {
  const folders = readdirSync(temp).filter(name => name.startsWith('commands-'))
  return folders.some(name => readFileSync(join(temp, name, 'output'), 'utf8').includes('invalid_input'))
}

describe('a cancelled update', { concurrency: 4 }, () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
  })
  after(() => fleet.close())
  const skip = whyNoStrace()

  for (const { at, outcome } of MOMENTS) {
    it(`ends as ${outcome} when the cancel comes at its record "${at}"`, { skip }, async t => {
      const host = fleet.newHost(`cancelled at ${at.replaceAll('/', ' ')}`)
      const { run } = await cancelBefore(at).prepare(t, host, fleet)
      const result = await host.deploy({}, run)
      if (outcome === 'success') assertSucceeds(result)
      else assertCancelled(fleet, host, result, outcome)
      assert.deepEqual(host.tree(), outcome === 'success' ? fleet.new : fleet.old)
      assert.deepEqual(host.reported(), [outcome])
      assertNothingStrays(host.root)
    })
  }

  for (const signal of sampled(['SIGINT', 'SIGTERM'] as const, 1)) {
    it(`ends with its outputs when the cancel (${signal}) comes before the action is loaded`, async () => {
      const host = fleet.newHost(`cancelled-by-${signal}-at-once`)
      const env = { NODE_OPTIONS: `--import=${SIGNAL_AT_FILE}`, SIGNAL: signal, AT_FILE: '/dist/index.js' }
      assertCancelled(fleet, host, await host.deploy({}, { env }), 'failed')
    })
  }

  for (const route of sampled(['detail', 'artifact'] as const, 1)) {
    it(`stops waiting for the hub's answer (${route})`, async t => {
      const host = fleet.newHost(`waits-for-${route}`)
      const gate = await openGate(t, fleet.stage.hub.url, asked => {
        if (asked !== route) return undefined
        process.kill(readHolder(host.root), 'SIGINT')
        return forEver()
      })
      const result = await host.deploy({ version: 'latest', 'hub-url': gate.url })
      assertCancelled(fleet, host, result, 'failed')
    })
  }

  for (const root of sampled(['a project root', 'no project root'], 1)) {
    it(`sets its outputs before the hub answers its report, if it was refused and there is ${root}`, async t => {
      const host = fleet.newHost(`refused-with-${root}`)
      let pid = 0
      let wereThere = false
      const gate = await openGate(t, fleet.stage.hub.url, async asked => {
        if (asked !== 'report') return
        process.kill(pid, 'SIGINT')
        await waitUntil('the outputs are set', () => hasRefusal(host))
        wereThere = true
      })
      const missing = root === 'a project root' ? {} : { 'project-root': join(host.root, 'missing/too') }
      const inputs = { version: 'not a version', 'hub-url': gate.url, ...missing }
      const result = await host.deploy(inputs, {
        onStart(started) {
          pid = started
        },
      })
      assert.ok(wereThere, result.log)
      assert.deepEqual([result.outputs['outcome'], result.outputs['error-code']], ['failed', 'invalid_input'])
    })
  }

  it('stops waiting for the lock and leaves it to its holder', async () => {
    const host = fleet.newHost('waits-for-the-lock')
    const path = join(host.root, '.hub-deploy/lock')
    const lock = await acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} })
    const result = await host.deploy(
      {},
      onceInLog('Waiting for the lock', pid => process.kill(pid, 'SIGINT')),
    )
    assert.ok(existsSync(path))
    lock.release()
    assertCancelled(fleet, host, result, 'failed')
    assert.equal(result.state['deployment-id'], undefined)
  })

  const CANCELLING_CHILDREN = {
    'ends a child that keeps running': `${NOTE_PID}; kill -INT $PPID; exec sleep 3600`,
    'ends a child that ignores SIGTERM': `trap '' TERM; ${NOTE_PID}; kill -INT $PPID; while :; do sleep 1; done`,
    'ends the processes that a child has started': `(trap '' TERM; ${NOTE_PID}; exec sleep 3600) &
      ${AWAIT_PID}; kill -INT $PPID; exec sleep 3600`,
  }
  for (const [what, script] of sampled(Object.entries(CANCELLING_CHILDREN), 1)) {
    it(what, async t => {
      const host = fleet.newHost(what.replaceAll(' ', '-'))
      const path = standIn(t, 'sync', script)
      const result = await host.deploy({}, { env: { PATH: path } })
      assertCancelled(fleet, host, result, 'failed')
      await waitForEnd(readNotedPid(path))
    })
  }

  const SLOW_UNDO = 'that the runner kills in the middle of its rollback'
  it(`${SLOW_UNDO} is finished by post`, { skip }, async t => {
    const host = fleet.newHost('finished-by-post')
    await cancelWithSlowUndo(t, fleet, host)
    assert.equal((await host.post()).exitCode, 0)
    assertRolledBack(fleet, host)
    assert.deepEqual(host.reported(), ['rolled_back'])
    assertNothingStrays(host.root)
  })

  it(`${SLOW_UNDO} is finished by the next run when post never runs`, { skip }, async t => {
    const host = fleet.newHost('finished-by-the-next-run')
    await cancelWithSlowUndo(t, fleet, host)
    assertSucceeds(await host.deploy())
    assertRolledBack(fleet, host, fleet.new)
    assert.deepEqual(host.reported(), ['rolled_back', 'success'])
    assertNothingStrays(host.root)
  })

  it('sets the outputs of its success before it reports, in case the runner kills it while the hub does not answer', {
    skip: ONLY_IN_CI,
  }, async t => {
    const host = fleet.newHost('hanging-success')
    const gate = await openGate(t, fleet.stage.hub.url, route => {
      if (route !== 'report') return undefined
      void killAsTheRunnerDoes(readHolder(host.root))
      return forEver()
    })
    const { outputs } = await host.deploy({ 'hub-url': gate.url })
    assert.deepEqual([outputs['outcome'], outputs['changed'], outputs['reported']], ['success', 'true', 'false'])
    assert.deepEqual(host.tree(), fleet.new)
  })

  it('keeps its report for post when the hub does not answer before the runner kills it', {
    skip: ONLY_IN_CI,
  }, async t => {
    const host = fleet.newHost('hanging-report')
    let hangs = true
    const gate = await openGate(t, fleet.stage.hub.url, route => {
      if (hangs && route === 'artifact') void killAsTheRunnerDoes(readHolder(host.root))
      return hangs && route !== 'detail' ? forEver() : undefined
    })
    const inputs = { 'hub-url': gate.url }
    const { outputs } = await host.deploy(inputs)
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'cancelled'])
    hangs = false
    assert.equal((await host.post(inputs)).exitCode, 0)
    assert.deepEqual(host.tree(), fleet.old)
    assert.equal(host.localReports()[0]?.error?.code, 'cancelled')
    assertSucceeds(await host.deploy(inputs))
    assert.deepEqual(host.reported(), ['failed', 'success'])
    assertNothingStrays(host.root)
  })
})

describe('an update whose child', { concurrency: 2 }, () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
  })
  after(() => fleet.close())

  const HARMLESS_CHILDREN = {
    'reads from its standard input': 'cat',
    'writes more than a pipe holds': 'head -c 1000000 /dev/zero',
  }
  for (const [what, script] of sampled(Object.entries(HARMLESS_CHILDREN), 1)) {
    it(`${what} succeeds`, async t => {
      const host = fleet.newHost(what.replaceAll(' ', '-'))
      assertSucceeds(await host.deploy({}, { env: { PATH: standIn(t, 'sync', script) } }))
      assert.deepEqual(host.tree(), fleet.new)
    })
  }

  it('leaves behind a process that keeps the output open succeeds without waiting for that process', async t => {
    const host = fleet.newHost('leaves-a-process-behind')
    const path = standIn(t, 'sync', `setsid "$(dirname "$0")/left-behind" & ${AWAIT_PID}`)
    const script = `#!/bin/sh\n${NOTE_PID}\nexec sleep 3600\n`
    writeFileSync(join(path.split(delimiter)[0] as string, 'left-behind'), script, { mode: 0o755 })
    assertSucceeds(await host.deploy({}, { env: { PATH: path } }))
    assert.deepEqual(host.tree(), fleet.new)
    const pid = readNotedPid(path)
    assert.ok(isRunning(pid))
    process.kill(pid, 'SIGKILL')
  })
})

function assertCancelled(fleet: Fleet, host: PreparedHost, result: ActionResult, outcome: Outcome): void {
  const { outputs, exitCode, log } = result
  assert.deepEqual([outputs['outcome'], outputs['error-code'], exitCode], [outcome, 'cancelled', 1], log)
  assert.equal(commandsIn(log, 'error').length, 1)
  assert.equal(host.localReports()[0]?.error?.code, 'cancelled')
  assert.deepEqual(host.reported(), [outcome])
  assert.deepEqual(host.tree(), fleet.old)
  assertNothingStrays(host.root)
}

function assertRolledBack(fleet: Fleet, host: PreparedHost, tree = fleet.old): void {
  const [dead] = host.localReports()
  assert.equal(dead?.outcome, 'rolled_back')
  assert.equal(dead.states.at(-1)?.state, 'rolled_back')
  assert.deepEqual(host.tree(), tree)
}

/**
 * Cancels a run right after the switch. The first undo of the run hangs, so the run is killed as the runner kills a
 * cancelled step.
 */
async function cancelWithSlowUndo(t: TestContext, fleet: Fleet, host: PreparedHost): Promise<void> {
  const { run } = await cancelBeforeAndBlockUndo('step files').prepare(t, host, fleet)
  const killer = onceInLog('has the tree digest', () => killAsTheRunnerDoes(readHolder(host.root)))
  const result = await host.deploy({}, { ...run, ...killer })
  assert.equal(result.signal, 'SIGKILL', result.log)
  assert.equal(result.outputs['outcome'], 'interrupted')
}
