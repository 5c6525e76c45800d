import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import type { Outcome } from '../../../src/core/state-machine.ts'
import { byExtent } from '../../extent.ts'
import { assertNothingStrays } from '../harness/evidence.ts'
import { mountMemory, mountOver, run, whyNoImmutables, whyNoMounting } from '../harness/mounts.ts'
import { assertSucceeds, FAILING_VERSION, type Fleet, openFleet, type PreparedHost } from '../harness/prepared-host.ts'
import { standIn } from '../harness/processes.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles } from '../harness/stage.ts'
import { goReadOnly, tamper, whyNoStrace } from '../harness/strace.ts'
import { openGate } from '../harness/untrusted-hub.ts'

const MANY_FILES_VERSION = '3.0.0'

describe('an update on a disk', () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
    await fleet.stage.publish(MANY_FILES_VERSION, manyFiles())
  })
  after(() => fleet.close())
  const noMounting = whyNoMounting()
  const noImmutables = whyNoImmutables()

  const TOO_SMALL = { 'with no room': 'size=1m', 'out of inodes': 'nr_inodes=200' }
  for (const [what, options] of Object.entries(TOO_SMALL)) {
    it(`${what} is refused before anything is fetched`, { skip: noMounting }, async t => {
      const host = fleet.newHost(what, join(mountMemory(t, options), 'host'))
      useUpInodes(join(host.root, '..'))
      const fetched = await updateThroughGate(t, fleet, host)
      assertEnds(fleet, host, fetched.result, 'failed', 'disk_full')
      assert.equal(fetched.artifacts, 0)
    })
  }

  // The version has many files of one byte: the bytes fit into this space, but the blocks or the inodes do not.
  const TOO_SMALL_FOR_MANY = { 'of room': 'size=6m', 'of inodes': 'nr_inodes=800' }
  for (const [what, options] of Object.entries(TOO_SMALL_FOR_MANY)) {
    it(`that runs out ${what} during the extraction keeps the old version and nothing of the new one`, {
      skip: noMounting,
    }, async t => {
      const host = fleet.newHost(`extracts-out-${what}`, join(mountMemory(t, options), 'host'))
      const result = await host.deploy({ version: MANY_FILES_VERSION })
      assertEnds(fleet, host, result, 'failed', 'disk_full')
      const [report] = host.localReports()
      assert.equal(report?.states.at(-2)?.state, 'extracting')
      assertNothingStrays(host.root)
      await assertGoesOn(fleet, host)
    })
  }

  it('that fills up during the installation is rolled back without any space, and succeeds once there is space', {
    skip: noMounting,
  }, async t => {
    const host = fleet.newHost('fills-up', join(mountMemory(t, 'size=4m'), 'host'))
    const filler = join(host.root, '..', 'filler')
    const path = standIn(t, 'sync', `cat /dev/zero > ${filler} 2>/dev/null; exit 0`)
    const result = await host.deploy({}, { env: { PATH: path } })
    assert.equal(result.outputs['error-code'], 'disk_full', result.log)
    assert.deepEqual(host.tree(), fleet.old)
    assert.ok(host.localReports().length === 1 || result.log.includes('Could not write the local report'))
    rmSync(filler)
    await assertGoesOn(fleet, host)
  })

  it('that is read-only is refused', { skip: noMounting }, async t => {
    const folder = mountMemory(t, 'size=8m')
    const host = fleet.newHost('read-only', join(folder, 'host'))
    run('mount', '-o', 'remount,ro', folder)
    const result = await host.deploy()
    assert.deepEqual([result.outputs['outcome'], result.outputs['error-code']], ['failed', 'host_not_writable'])
    assert.deepEqual(host.reported(), ['failed'])
    run('mount', '-o', 'remount,rw', folder)
    await assertGoesOn(fleet, host)
  })

  it('is refused before the switch when the old version is immutable', { skip: noImmutables }, async t => {
    const host = fleet.newHost('immutable-old')
    const place = join(host.root, 'plugins/greeter')
    run('chattr', '+i', place)
    t.after(() => run('chattr', '-R', '-i', host.root))
    assertEnds(fleet, host, await host.deploy(), 'failed', 'host_not_writable')
    run('chattr', '-i', place)
    await assertGoesOn(fleet, host)
  })

  it('is inconsistent while its new version cannot be moved, and is repaired afterwards', {
    skip: noImmutables || whyNoStrace(),
  }, async t => {
    const host = fleet.newHost('immutable-new')
    const place = join(host.root, 'plugins/greeter')
    const broken = await host.deploy({ version: FAILING_VERSION }, tamper(place, 'rename', 'error=EPERM', '4+'))
    assert.deepEqual([broken.outputs['outcome'], broken.outputs['error-code']], ['inconsistent', 'step_failed'])
    assert.match(host.localReports()[0]?.rollback?.problems.join() ?? '', /tree was moved to plugins\/greeter/)
    run('chattr', '+i', place)
    t.after(() => run('chattr', '-R', '-i', host.root))
    const refused = await host.deploy()
    assert.deepEqual([refused.outputs['outcome'], refused.outputs['error-code']], ['inconsistent', 'inconsistent'])
    run('chattr', '-i', place)
    await assertGoesOn(fleet, host)
    assert.deepEqual([host.localReports()[0]?.outcome, host.reported().at(-2)], ['rolled_back', 'rolled_back'])
  })

  for (const nth of byExtent({ sample: [9, 18], ci: [6, 9, 12, 15, 18, 21] })) {
    it(`that goes read-only before call ${nth} that changes a name reports the truth, and the next run recovers by itself`, {
      skip: whyNoStrace(),
    }, async () => {
      const host = fleet.newHost(`read-only-${nth}`)
      const { outputs, log } = await host.deploy({}, goReadOnly(nth))
      const outcome = outputs['outcome'] ?? ''
      assert.ok(['success', 'failed', 'rolled_back', 'inconsistent'].includes(outcome), log)
      if (outcome === 'success') assert.deepEqual(host.tree(), fleet.new)
      else if (outcome !== 'inconsistent') assert.deepEqual(host.tree(), fleet.old)
      assertSucceeds(await host.deploy())
      assert.deepEqual(host.tree(), fleet.new)
      assertNothingStrays(host.root)
    })
  }

  it('other than that of the temporary folder succeeds', { skip: noMounting }, async t => {
    const host = fleet.newHost('other-disk', join(mountMemory(t, 'size=8m'), 'host'))
    await assertGoesOn(fleet, host)
  })

  it('that has plugins/ as a symlink succeeds', async () => {
    const host = fleet.newHost('symlinked')
    renameSync(join(host.root, 'plugins'), join(host.root, 'elsewhere'))
    symlinkSync('elsewhere', join(host.root, 'plugins'))
    await assertGoesOn(fleet, host)
  })

  it('that has plugins/ on another file system is refused before anything is fetched', {
    skip: noMounting,
  }, async t => {
    const host = fleet.newHost('two-disks')
    rmSync(join(host.root, 'plugins'), { recursive: true })
    mountOver(t, join(host.root, 'plugins'), 'size=8m')
    const { result, artifacts } = await updateThroughGate(t, fleet, host)
    assert.deepEqual([result.outputs['outcome'], result.outputs['error-code']], ['failed', 'host_not_writable'])
    assert.equal(artifacts, 0)
  })

  it('keeps an existing foreign directory as a snapshot for good', async () => {
    const host = fleet.newHost('foreign')
    rmSync(host.root, { recursive: true })
    mkdirSync(join(host.root, 'plugins/greeter'), { recursive: true })
    writeFileSync(join(host.root, 'plugins/greeter/precious'), 'made by hand')
    for (const version of ['1.0.0', '2.0.0', '1.0.0']) assertSucceeds(await host.deploy({ version }))
    const { log } = await host.deploy({ version: '2.0.0' })
    for (const [name, what] of Object.entries({
      '1-unknown': 'stays',
      '3-2.0.0': 'will be removed',
      '4-1.0.0': 'stays',
    }))
      assert.ok(log.includes(`Snapshot ${name} of plugins/greeter ${what}: `), log)
    assert.ok(existsSync(join(host.root, '.hub-deploy/snapshots/plugins/greeter/1-unknown/precious')))
  })

  for (const umask of [0o000, 0o077]) {
    it(`under umask ${umask.toString(8).padStart(3, '0')} installs the same modes`, async () => {
      const host = fleet.newHost(`umask-${umask}`)
      assertSucceeds(await deployUnder(umask, host))
      assert.deepEqual(host.tree(), fleet.new)
      rmSync(host.root, { recursive: true })
      assertSucceeds(await deployUnder(umask, host))
      const modeOf = (path: string): number => statSync(join(host.root, path)).mode & 0o777
      assert.deepEqual(['', 'plugins', 'plugins/greeter', '.hub-deploy'].map(modeOf), [0o755, 0o755, 0o755, 0o700])
    })
  }
})

/**
 * Uses up all but eight inodes of a file system with fewer than 200 free inodes. With more, creates 192 empty files.
 */
function useUpInodes(folder: string): void {
  const names = Array.from({ length: 200 }, (_, index) => join(folder, `filler-${index}`))
  const made = names.filter(path => {
    try {
      writeFileSync(path, '')
      return true
    } catch {
      return false
    }
  })
  for (const path of made.slice(-8)) rmSync(path)
}

/** Deploys under this umask. A process inherits the umask that its parent has when the process starts. */
function deployUnder(umask: number, host: PreparedHost): Promise<ActionResult> {
  const usual = process.umask(umask)
  try {
    return host.deploy()
  } finally {
    process.umask(usual)
  }
}

function manyFiles(): Record<string, string> {
  const paths = Array.from({ length: 2000 }, (_, index) => `data/${index % 10}/${index}`)
  return { ...pluginFiles(MANY_FILES_VERSION), ...Object.fromEntries(paths.map(path => [path, 'x'])) }
}

function assertEnds(fleet: Fleet, host: PreparedHost, result: ActionResult, outcome: Outcome, code: ErrorCode): void {
  assert.deepEqual([result.outputs['outcome'], result.outputs['error-code']], [outcome, code], result.log)
  assert.deepEqual(host.tree(), fleet.old)
  assert.deepEqual(host.reported(), [outcome])
}

async function assertGoesOn(fleet: Fleet, host: PreparedHost): Promise<void> {
  assertSucceeds(await host.deploy())
  assert.deepEqual(host.tree(), fleet.new)
  assertNothingStrays(host.root)
}

async function updateThroughGate(
  t: Parameters<typeof openGate>[0],
  fleet: Fleet,
  host: PreparedHost,
): Promise<{ result: ActionResult; artifacts: number }> {
  let artifacts = 0
  const gate = await openGate(t, fleet.stage.hub.url, route => {
    if (route === 'artifact') artifacts++
  })
  return { result: await host.deploy({ 'hub-url': gate.url }), artifacts }
}

describe('a host whose disk is full during recovery', { skip: whyNoMounting() }, () => {
  it('is still recovered, with the space that is reserved for recovery', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    const root = mountMemory(t, 'size=4m')
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
    await stage.deploy({ 'project-root': root, version: '1.0.0' })
    const config = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', 'kill -9 $PPID; sleep 1'] } } }
    writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
    stage.writePlan(`${PLUGIN_PLAN}  - {id: work, action: provision, plugin: greeter, depends_on: [files]}\n`)
    const killed = await stage.deploy({ 'project-root': root, 'host-config': 'host.yaml' })
    assert.equal(killed.signal, 'SIGKILL')
    spawnSync('dd', ['if=/dev/zero', `of=${join(root, 'fill')}`, 'bs=4096'])
    const { log } = await stage.deploy({ 'project-root': root, 'host-config': 'host.yaml' })
    assert.match(readFileSync(join(root, 'plugins/greeter/plugin.yaml'), 'utf8'), /1\.0\.0/, log)
  })
})

describe('a disk with too little room for a project', () => {
  const noMounting = whyNoMounting()
  const many = Object.fromEntries(Array.from({ length: 200 }, (_, index) => [`plugins/cart/src/${index}.py`, 'x']))
  const disks = { 'too few inodes': 'size=8m,nr_inodes=150', 'too few bytes': 'size=1500k' }
  for (const [what, options] of Object.entries(disks)) {
    it(`is refused for ${what} as soon as the listing is known, before any file is extracted`, {
      skip: noMounting,
    }, async t => {
      const stage = await openProjectStage()
      t.after(() => stage.close())
      await stage.publish('1.0.0', projectFiles('1.0.0', many))
      const root = join(mountMemory(t, options), 'host')
      const { outputs, log } = await stage.deploy({ 'project-root': root })
      assert.deepEqual(
        [outputs['outcome'], outputs['error-code'], outputs['changed']],
        ['failed', 'disk_full', 'false'],
      )
      assert.match(log, /This run needs .* Nothing was changed/)
      assert.equal(existsSync(join(root, 'plugins')), false)
      for (const name of ['staging', 'trash']) assert.deepEqual(readdirSync(join(root, '.hub-deploy', name)), [])
    })
  }
})
