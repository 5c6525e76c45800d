import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { byExtent } from '../../extent.ts'
import { acceptedReports, assertNothingStrays } from '../harness/evidence.ts'
import { mountMemory, run, whyNoImmutables, whyNoMounting } from '../harness/mounts.ts'
import { assertSucceeds, type Fleet, openFleet, type PreparedHost } from '../harness/prepared-host.ts'
import { openStage, PLUGIN_PLAN, pluginFiles } from '../harness/stage.ts'
import { killBefore, type Stop } from '../harness/stops.ts'
import { tamper, whyNoStrace } from '../harness/strace.ts'
import { openGate } from '../harness/untrusted-hub.ts'

const MANY_FILES_VERSION = '3.0.0'
const NIGHTS = byExtent({ sample: 2, ci: 6 })
/** One in this many successive faults is tested. */
const SAMPLED = byExtent({ sample: 5, ci: 1 })

/** A fault of a host that lasts for some nights. */
interface Fault {
  /** The stop that kills a run before the first night. */
  cut?: Stop
  /** The mount options of a small file system for the host. */
  disk?: string
  skip: string | false
  /**
   * Set if the host is neither old nor new until the fault is gone. Otherwise, no run may report the host as
   * inconsistent.
   */
  leavesNeither?: true
  /** Causes the fault, unless `run` or `inputs` does. */
  begin(t: TestContext, host: PreparedHost, fleet: Fleet): Begun | Promise<Begun>
  inputs?: (night: number, host: PreparedHost) => Record<string, string>
  run?: (host: PreparedHost) => Partial<ActionRun>
  /** Set if the runs succeed in spite of the fault. */
  isHarmless?: true
  /** The most nights; set if the recovery would give up after more nights. */
  atMost?: number
}

interface Begun {
  end(): void
  /** The inputs of every run, including the run after the fault. */
  inputs?: Record<string, string>
}

const NOTHING: Begun = { end: () => {} }

const CUTS: Record<string, { cut: Stop; leavesNeither?: true }> = {
  'before it had changed anything': { cut: killBefore('state installing') },
  'in the middle of its switch': { cut: killBefore('change plugins/greeter'), leavesNeither: true },
  'after its commit': { cut: killBefore('end') },
}

const alternating = (night: number): Record<string, string> => ({ version: night % 2 === 0 ? '1.0.0' : '2.0.0' })

const FAULTS: Record<string, Fault> = {
  'an immutable installed.json': {
    skip: whyNoImmutables(),
    begin: (t, host) => freeze(t, join(host.root, '.hub-deploy/installed.json')),
  },
  'a journal that cannot be removed': {
    skip: whyNoStrace(),
    begin: () => NOTHING,
    inputs: alternating,
    run: host => tamper(join(host.root, '.hub-deploy/journal.jsonl'), 'unlink', 'error=EPERM', '1+'),
  },
  'an old snapshot that cannot be removed': {
    skip: whyNoImmutables(),
    begin: (t, host) => freeze(t, join(host.root, '.hub-deploy/snapshots/plugins/greeter/1-0.9.0')),
    inputs: alternating,
    isHarmless: true,
  },
  'an old version that cannot be moved back': {
    cut: killBefore('change plugins/greeter'),
    leavesNeither: true,
    atMost: 4,
    skip: whyNoImmutables() || whyNoStrace(),
    begin: (t, host) => freeze(t, join(host.root, '.hub-deploy/snapshots/plugins/greeter/2-1.0.0')),
  },
  'too few inodes for the new version': {
    disk: 'size=16m,nr_inodes=400',
    skip: whyNoMounting(),
    begin: () => NOTHING,
    inputs: () => ({ version: MANY_FILES_VERSION }),
  },
  'a hub that fails at every report': {
    skip: false,
    begin: (t, _host, fleet) => failReports(t, fleet),
    inputs: alternating,
    isHarmless: true,
  },
  ...Object.fromEntries(
    ['EPERM', 'EOPNOTSUPP'].map((errno): [string, Fault] => [
      `a file system without hard links (${errno})`,
      {
        skip: whyNoStrace(),
        begin: () => NOTHING,
        inputs: alternating,
        run: () => withoutLinks(errno),
        isHarmless: true,
      },
    ]),
  ),
  ...Object.fromEntries(
    Object.entries(CUTS).flatMap(([when, cut]): [string, Fault][] => [
      [
        `a disk that went read-only after a run was killed ${when}`,
        { ...cut, disk: 'size=16m', skip: whyNoMounting() || whyNoStrace(), begin: makeReadOnly },
      ],
      [
        `a disk without inodes after a run was killed ${when}`,
        {
          ...cut,
          disk: 'size=16m,nr_inodes=600',
          skip: whyNoMounting() || whyNoStrace(),
          begin: (_t, host) => useUpInodes(dirname(host.root)),
        },
      ],
    ]),
  ),
}

describe('nights with', { concurrency: 2 }, () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
    await fleet.stage.publish(MANY_FILES_VERSION, manyFiles())
  })
  after(() => fleet.close())

  for (const [name, fault] of Object.entries(FAULTS).filter((_, index) => index % SAMPLED === 0)) {
    it(`${name} report the truth, and the first night after them succeeds`, { skip: fault.skip }, async t => {
      const host = await prepare(t, fleet, fault, name.replaceAll(/[^a-z]+/gi, '-'))
      const begun = await fault.begin(t, host, fleet)
      const outcomes: string[] = []
      for (let night = 1; night <= Math.min(NIGHTS, fault.atMost ?? NIGHTS); night++) {
        const was = treeOf(host, fleet)
        const inputs = { ...begun.inputs, ...fault.inputs?.(night, host) }
        const result = await host.deploy(inputs, fault.run?.(host) ?? {})
        outcomes.push(`${result.outputs['outcome']}:${result.outputs['error-code'] ?? ''}`)
        assertTrue(host, fleet, { fault, was, night, result, version: inputs['version'] ?? '2.0.0' })
        await host.post(inputs, { ...fault.run?.(host), state: result.state })
        assertHeardOnce(host, fleet)
      }
      t.diagnostic(outcomes.join(' '))
      begun.end()
      const last = await host.deploy(begun.inputs)
      assertSucceeds(last)
      assert.equal(treeOf(host, fleet), 'new')
      assertNothingStrays(host.root)
      assertNoStraySnapshot(host.root, 'greeter')
      assertHeardOnce(host, fleet)
      assertAllHeard(host)
    })
  }
})

describe('nights', () => {
  it('with names of the longest allowed length leave no stray files', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    const slug = 'g'.repeat(124)
    stage.writePlan(PLUGIN_PLAN.replaceAll('greeter', slug))
    const versions = ['1.0.0', '2.0.0'].map(version => `${version}-${'a'.repeat(120)}`)
    for (const version of versions) {
      const yaml = `name: ${slug}\nversion: "${version}"\n`
      await stage.publish(version, { ...pluginFiles(version), 'plugin.yaml': yaml }, { slug })
    }
    for (let night = 1; night <= NIGHTS + 1; night++) {
      const version = versions[night % 2] ?? ''
      const result = await stage.deploy({ slug, version, 'keep-snapshots': '1', 'allow-downgrade': 'true' })
      assertSucceeds(result)
      assert.doesNotMatch(result.log, /::warning::/)
      assertNothingStrays(stage.root)
      assertNoStraySnapshot(stage.root, slug)
    }
    assert.equal(acceptedReports(stage).length, NIGHTS + 1)
  })
})

async function prepare(t: TestContext, fleet: Fleet, { cut, disk }: Fault, name: string): Promise<PreparedHost> {
  const host = fleet.newHost(name, disk === undefined ? undefined : join(mountMemory(t, disk), 'host'))
  if (cut === undefined) return host
  const { run, inputs } = await cut.prepare(t, host, fleet)
  assert.equal((await host.deploy(inputs, run)).outputs['outcome'], 'interrupted')
  return host
}

interface Night {
  fault: Fault
  was: string
  night: number
  result: ActionResult
  version: string
}

/** Asserts that the outputs, the local report and the files on the disk agree. */
function assertTrue(host: PreparedHost, fleet: Fleet, { fault, was, night, result, version }: Night): void {
  const { exitCode, outputs, log } = result
  const outcome = outputs['outcome'] ?? ''
  const is = treeOf(host, fleet)
  const description = `night ${night}: ${outcome}, was ${was}, is ${is}\n${log}`
  assert.equal(exitCode, outcome === 'success' ? 0 : 1, description)
  assert.ok(['success', 'failed', 'rolled_back', 'inconsistent'].includes(outcome), description)
  assert.equal(outcome === 'inconsistent', is === 'neither', description)
  assert.ok(is !== 'neither' || fault.leavesNeither, description)
  assert.ok(outcome === 'success' || !fault.isHarmless, description)
  if (outcome === 'success') assert.equal(is, version === '2.0.0' ? 'new' : 'old', description)
  // The recovery of an earlier run is not a change by this run.
  else if (was !== 'neither' && fault.cut === undefined) assert.equal(is, was, description)
  const path = outputs['report-path']
  if (path === undefined || path === '') return
  const report = JSON.parse(readFileSync(path, 'utf8'))
  assert.deepEqual(
    [report.outcome, report.error?.code ?? '', report.deployment_id, String(report.reported.accepted)],
    [outcome, outputs['error-code'], outputs['deployment-id'], outputs['reported']],
    description,
  )
}

/**
 * The state of greeter's directory, including the host's own data in it: exactly `old`, exactly `new`, or `neither`.
 */
function treeOf(host: PreparedHost, fleet: Fleet): string {
  const ofPlugin = (tree: Record<string, string>): string =>
    JSON.stringify(Object.entries(tree).filter(([path]) => path.startsWith('greeter/')))
  const tree = ofPlugin(host.tree())
  return tree === ofPlugin(fleet.old) ? 'old' : tree === ofPlugin(fleet.new) ? 'new' : 'neither'
}

function assertHeardOnce({ name }: PreparedHost, { stage }: Fleet): void {
  const rows = acceptedReports(stage).filter(row => row.host_id === name)
  // If a run can be rolled back only later, the hub gets a second report on it: `rolled_back`.
  const reports = new Set(rows.map(row => `${row.started_at} ${row.status}`))
  assert.equal(rows.length, reports.size, 'the hub must get each report only once')
}

/** Asserts that the hub has accepted the report of every run that could write a local report. */
function assertAllHeard(host: PreparedHost): void {
  const reports = host.localReports()
  assert.deepEqual(
    reports.filter(report => !report.reported.accepted).map(report => report.started_at),
    [],
  )
  const statuses = reports.map(report => report.status)
  assert.deepEqual(
    host
      .reported()
      .toSorted()
      .filter(status => status === 'success').length >= 1,
    true,
  )
  assert.equal(host.reported().length >= statuses.length, true)
}

function assertNoStraySnapshot(root: string, id: string): void {
  const { installed } = JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8'))
  const recorded = installed[0].snapshots.map((row: { name: string }) => row.name)
  const folder = join(root, '.hub-deploy/snapshots/plugins', id)
  assert.deepEqual(existsSync(folder) ? readdirSync(folder) : [], recorded)
}

function freeze(t: TestContext, path: string): Begun {
  run('chattr', '+i', path)
  const thaw = (): void => run('chattr', '-i', path)
  t.after(() => {
    try {
      thaw()
    } catch {
      // The path no longer exists.
    }
  })
  return { end: thaw }
}

function makeReadOnly(_t: TestContext, host: PreparedHost): Begun {
  const disk = dirname(host.root)
  run('mount', '-o', 'remount,ro', disk)
  return { end: () => run('mount', '-o', 'remount,rw', disk) }
}

function useUpInodes(folder: string): Begun {
  const made: string[] = []
  try {
    for (let n = 0; ; n++) {
      const path = join(folder, `filler-${n}`)
      writeFileSync(path, '')
      made.push(path)
    }
  } catch {
    // No inode is left.
  }
  return {
    end: () => {
      for (const path of made) rmSync(path)
    },
  }
}

function withoutLinks(errno: string): Partial<ActionRun> {
  return { through: ['strace', '-f', '-qq', '-o', '/dev/null', '-e', `inject=?link,linkat:error=${errno}`] }
}

/** Makes the hub answer every report with 500. */
async function failReports(t: TestContext, { stage }: Fleet): Promise<Begun> {
  let isFailing = true
  const gate = await openGate(t, stage.hub.url, route => {
    return isFailing && route === 'report' ? 'fail' : undefined
  })
  return {
    inputs: { 'hub-url': gate.url },
    end: () => {
      isFailing = false
    },
  }
}

function manyFiles(): Record<string, string> {
  const paths = Array.from({ length: 500 }, (_, index) => `data/${index}`)
  return { ...pluginFiles(MANY_FILES_VERSION), ...Object.fromEntries(paths.map(path => [path, 'x'])) }
}
