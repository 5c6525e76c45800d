import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { byExtent, whyLeftToCi } from '../../extent.ts'
import { assertExactly, assertNothingStrays, listLasting, readReports } from '../harness/evidence.ts'
import {
  type DiskFormat,
  type LoggedDisk,
  makeDisk,
  whyNoLoggedBtrfs,
  whyNoLoggedDisk,
  withLoggedDisk,
  withMounted,
} from '../harness/logged-disk.ts'
import { BEGINNING, cutAt, END, markIn, type Recording, readRecording, rebuildDisk } from '../harness/power-cut.ts'
import { type Deployment, openPowerCutHosts, type PowerCutHosts } from '../harness/power-cut-hosts.ts'
import type { HostCopy } from '../harness/prepared-host.ts'
import { countOutcomes } from '../harness/random.ts'
import { traceCommand, whyNoStrace } from '../harness/strace.ts'
import { openGate } from '../harness/untrusted-hub.ts'

const IS_FULL = byExtent({ sample: false, ci: true })
/** The number of cuts for each recording. */
const CUTS = Number(process.env['POWER_CUTS'] ?? (IS_FULL ? 4 : 1))
const SEED = Number(process.env['POWER_SEED'] ?? randomInt(1_000_000))
const DEPLOYMENTS: readonly Deployment[] = [
  'first install',
  'update',
  'rollback',
  'operator rollback',
  'project update',
  'removal',
  'operator removal',
  'recovery',
]
const SHARED: Disk = {
  name: 'a disk that another process keeps syncing',
  type: 'ext4',
  blockBytes: 1024,
  hasNeighbour: true,
}
const QUIET: Disk = { name: 'a quiet disk', type: 'ext4', blockBytes: 4096, hasNeighbour: false }
/** A sync of a directory makes little more durable than that directory. */
const SPARING: Disk = { name: 'a disk with btrfs', type: 'btrfs', blockBytes: 4096, hasNeighbour: false }
const DISKS = IS_FULL ? [QUIET, SHARED, SPARING] : [SHARED]
/** The most power cuts in a case in which at least one cut must do harm. */
const CONTROLS = 40
/** The number of the first report's mark. Each report that reaches the hub gets a mark, with the next number. */
const FIRST_REPORT = 3

interface Disk extends DiskFormat {
  readonly name: string
  readonly hasNeighbour: boolean
}

/**
 * A process that keeps syncing its own file on the same disk. Each sync makes all earlier changes of names
 * durable, but not the bytes of other files. The process ends between two syncs.
 */
const NEIGHBOUR = 'trap "exit 0" TERM; while :; do echo x >>"$1"; sync "$1"; done'

for (const deployment of byExtent({ sample: ['update'] as const, ci: DEPLOYMENTS })) {
  describe(`a power cut during: ${deployment}`, { skip: whyNoLoggedDisk() }, () => {
    let hosts: PowerCutHosts
    before(async () => {
      hosts = await openPowerCutHosts(deployment)
    })
    after(() => hosts.close())

    for (const disk of DISKS) {
      const skip = disk.type === 'btrfs' && whyNoLoggedBtrfs()
      it(`leaves exactly the old or the new version, on ${disk.name} (POWER_SEED=${SEED})`, { skip }, async t => {
        const recorded = await record(t, hosts, { disk })
        const outcomes: string[] = []
        for (let cut = 0; cut < CUTS; cut++) outcomes.push(await cutAndFollow(recorded, SEED + cut))
        t.diagnostic(`${CUTS} cuts in ${recorded.recording.events.length} events: ${countOutcomes(outcomes)}`)
      })
    }
  })
}

/** Shows that the tests above can fail: here, one of the system calls does nothing, but reports success. */
describe('a power cut during an update', {
  skip: whyNoLoggedDisk() || whyNoStrace() || whyLeftToCi(),
}, () => {
  let hosts: PowerCutHosts
  before(async () => {
    hosts = await openPowerCutHosts('update')
  })
  after(() => hosts.close())

  for (const call of ['syncfs', 'fsync', 'fdatasync']) {
    it(`sooner or later leaves a host that is neither old nor new if ${call} does nothing`, async t => {
      const through = traceCommand({ log: '/dev/null', calls: [call], inject: [`${call}:retval=0`] })
      const recorded = await record(t, hosts, { disk: SHARED, run: { through } })
      for (let seed = SEED; seed < SEED + CONTROLS; seed++) {
        const harm = await follow(recorded, seed).then(() => undefined, toError)
        if (harm !== undefined) return t.diagnostic(`power cut ${seed - SEED + 1}: ${reasonOf(harm)}`)
      }
      assert.fail(`none of ${CONTROLS} power cuts did any harm, although ${call} does nothing`)
    })
  }
})

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}

/** The error that the action reports, or the beginning of the error's message. */
function reasonOf({ message }: Error): string {
  return /::error title=(.*)/.exec(message)?.[1] ?? message.slice(0, 500)
}

/** A deployment, with all writes to its disk, so that a test can continue from any moment of the deployment. */
interface Recorded {
  readonly hosts: PowerCutHosts
  readonly host: HostCopy
  /** The hub of the recorded deployment. A waiting report is sent only to the hub for which it was meant. */
  readonly hubUrl: string
  readonly recording: Recording
}

/** Runs the deployment, or the recovery of a killed deployment, once and to its end, on a logged disk. */
async function record(
  t: TestContext,
  hosts: PowerCutHosts,
  { disk, run = {} }: { disk: Disk; run?: Partial<ActionRun> },
): Promise<Recorded> {
  const folder = mkdtempSync(join(tmpdir(), 'power-cut-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const base = join(folder, 'base.img')
  makeDisk(base, disk)
  const host = await withMounted(base, mounted => hosts.copy('cut', join(mounted, 'host')))
  const gate = await openReportGate(t, hosts)
  await withLoggedDisk(folder, disk, async logged => {
    gate.watch(logged)
    const inputs = { ...hosts.inputs, 'hub-url': gate.url, 'project-root': join(logged.mounted, 'host') }
    await hosts.interrupt?.(host, inputs)
    const act = async (): Promise<void> => {
      logged.mark(BEGINNING)
      const { outputs, log } = hosts.interrupt ? await host.post(inputs, run) : await host.deploy(inputs, run)
      logged.mark(END)
      if (hosts.interrupt) assert.match(log, /was recovered: it was rolled back to /)
      else assert.equal(outputs['outcome'], hosts.outcome, log)
    }
    await (disk.hasNeighbour ? nextToNeighbour(logged.mounted, act) : act())
    gate.watch(undefined)
  })
  return { hosts, host, hubUrl: gate.url, recording: readRecording(folder) }
}

/**
 * Opens a proxy to the hub. The proxy adds a mark to the log of the watched disk when a report arrives. For a project,
 * there is no proxy: returns the hub's own URL.
 */
async function openReportGate(
  t: TestContext,
  { stage, isMarketplace }: PowerCutHosts,
): Promise<{ url: string; watch(disk: LoggedDisk | undefined): void }> {
  let watched: LoggedDisk | undefined
  let next = FIRST_REPORT
  const { url } = isMarketplace
    ? await openGate(t, stage.hub.url, route => (route === 'report' ? watched?.mark(next++) : undefined))
    : stage.hub
  return {
    url,
    watch(disk) {
      watched = disk
    },
  }
}

async function nextToNeighbour(mounted: string, act: () => Promise<void>): Promise<void> {
  const neighbour = spawn('sh', ['-c', NEIGHBOUR, 'sh', join(mounted, 'neighbour')], { stdio: 'ignore' })
  const ended = once(neighbour, 'exit')
  try {
    await act()
  } finally {
    neighbour.kill()
    await ended
  }
}

/**
 * Cuts the power and checks the runs that follow. Returns the outcome of the deployment that was cut off. If a check
 * fails, the error contains the command that rebuilds the disk.
 */
async function cutAndFollow(recorded: Recorded, seed: number): Promise<string> {
  try {
    return await follow(recorded, seed)
  } catch (error) {
    const kept = mkdtempSync(join(tmpdir(), 'failed-power-cut-'))
    for (const name of ['base.img', 'disk.log']) cpSync(join(recorded.recording.folder, name), join(kept, name))
    const advice = `To rebuild the disk: node test/e2e/harness/power-cut.ts ${kept} ${seed} disk.img`
    throw new Error(`${error instanceof Error ? error.message : error}\n${advice}`, { cause: error })
  }
}

async function follow({ hosts, host, hubUrl, recording }: Recorded, seed: number): Promise<string> {
  const at = cutAt(recording, seed)
  const image = join(recording.folder, 'rebuilt.img')
  writeFileSync(image, rebuildDisk(recording, at, seed))
  return await withMounted(image, async mounted => {
    const root = join(mounted, 'host')
    const inputs = { 'hub-url': hubUrl, 'project-root': root }
    if (seed % 2 === 0) {
      assertTruthful(await host.post(inputs))
      assertExactly(root, hosts.allowed)
    }
    const next = await host.deploy(inputs)
    assertTruthful(next)
    assert.equal(next.outputs['outcome'], 'success', next.log)
    assertExactly(root, { new: hosts.allowed.new })
    assert.deepEqual(listLasting(root), hosts.reference)
    assertNothingStrays(root)
    const wasHeard = markIn(recording.events.slice(0, at), FIRST_REPORT) !== -1
    return assertReported(root, next, { outcome: hosts.outcome, wasHeard })
  })
}

function assertTruthful({ outputs, log }: ActionResult): void {
  assert.notEqual(outputs['outcome'], 'inconsistent', log)
  assert.doesNotMatch(log, /inconsistent/)
}

/**
 * Asserts that the deployment that was cut off has one true local report or none. Returns the outcome in that report,
 * or `without a trace`.
 */
function assertReported(
  root: string,
  next: ActionResult,
  undisturbed: { readonly outcome: string; readonly wasHeard: boolean },
): string {
  const reports = [...readReports(root).values()].filter(({ host_id }) => host_id === 'cut')
  const earlier = reports.filter(({ deployment_id }) => deployment_id !== next.outputs['deployment-id'])
  assert.ok(earlier.length <= 1)
  const outcome = earlier[0]?.outcome
  if (undisturbed.wasHeard)
    assert.equal(
      outcome,
      undisturbed.outcome,
      'the outcome in the local report must be the one that the hub got before the power cut',
    )
  assert.ok(outcome !== 'inconsistent' && outcome !== 'interrupted')
  const isNew = outcome === 'success'
  assert.equal(next.outputs['changed'], String(!isNew), next.log)
  return outcome ?? 'without a trace'
}
