import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult, ActionRun } from '../../local/runner.ts'
import type { HostCopy } from './harness/host-copy.ts'
import { openGate } from './harness/hub-gate.ts'
import { assertExactly, assertNothingStrays, listLasting, readReports } from './harness/invariants.ts'
import { makeDisk, whyNoLoggedDisk, withLoggedDisk, withMounted } from './harness/logged-disk.ts'
import { countOutcomes } from './harness/outcome-counts.ts'
import { BEGINNING, cutAt, END, markIn, type Recording, readRecording, rebuildDisk } from './harness/power-cut.ts'
import { type Deployment, openPowerCutHosts, type PowerCutHosts } from './harness/power-cut-hosts.ts'
import { traceCommand, whyNoStrace } from './harness/strace.ts'

const IS_FULL = process.env['CI'] === 'true' || process.env['SWEEP'] === 'full'
/** For each recording. */
const CUTS = Number(process.env['POWER_CUTS'] ?? (IS_FULL ? 12 : 1))
const SEED = Number(process.env['POWER_SEED'] ?? randomInt(1_000_000))
const DEPLOYMENTS: readonly Deployment[] = ['first install', 'update', 'rollback', 'removal']
const NEIGHBOURS = 'a disk that a neighbour syncs all the time'
const DISKS = IS_FULL ? ['a quiet disk', NEIGHBOURS] : [NEIGHBOURS]
/** As many at most where they must do harm. */
const CONTROLS = 40
/** Further marks are reports, as they reach the hub. */
const FIRST_REPORT = 3

/**
 * Syncs a file of its own all the time, which makes each change of a name durable at once, but not the bytes of a file.
 * It ends between two of them.
 */
const NEIGHBOUR = 'trap "exit 0" TERM; while :; do echo x >>"$1"; sync "$1"; done'

for (const deployment of DEPLOYMENTS) {
  describe(`a power cut during a deployment: ${deployment}`, { skip: whyNoLoggedDisk() }, () => {
    let hosts: PowerCutHosts
    before(async () => {
      hosts = await openPowerCutHosts(deployment)
    })
    after(() => hosts.close())

    for (const disk of DISKS) {
      it(`leaves exactly the old or the new version, on ${disk} (POWER_SEED=${SEED})`, async t => {
        const recorded = await record(t, hosts, { hasNeighbour: disk === NEIGHBOURS })
        const outcomes: string[] = []
        for (let cut = 0; cut < CUTS; cut++) outcomes.push(await cutAndFollow(recorded, SEED + cut))
        t.diagnostic(`${CUTS} cuts in ${recorded.recording.events.length} events: ${countOutcomes(outcomes)}`)
      })
    }
  })
}

/** Shows that the tests above can fail: each of these calls is skipped, and called a success. */
describe('a power cut during an update', {
  skip: whyNoLoggedDisk() || whyNoStrace() || (!IS_FULL && 'only with SWEEP=full'),
}, () => {
  let hosts: PowerCutHosts
  before(async () => {
    hosts = await openPowerCutHosts('update')
  })
  after(() => hosts.close())

  for (const call of ['syncfs', 'fsync', 'fdatasync']) {
    it(`leaves a host that is neither, sooner or later, where ${call} does nothing`, async t => {
      const through = traceCommand({ log: '/dev/null', calls: [call], inject: [`${call}:retval=0`] })
      const recorded = await record(t, hosts, { hasNeighbour: true, run: { through } })
      for (let seed = SEED; seed < SEED + CONTROLS; seed++) {
        const harm = await follow(recorded, seed).then(() => undefined, toError)
        if (harm !== undefined) return t.diagnostic(`power cut ${seed - SEED + 1}: ${reasonOf(harm)}`)
      }
      assert.fail(`none of ${CONTROLS} power cuts did any harm`)
    })
  }
})

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error))
}

/** The error that the action reports, or how the host differs. */
function reasonOf({ message }: Error): string {
  return /::error title=(.*)/.exec(message)?.[1] ?? message.slice(0, 500)
}

/** A deployment as a disk saw it, and how to go on from any moment of it. */
interface Recorded {
  readonly hosts: PowerCutHosts
  readonly host: HostCopy
  /** Reports wait for the hub that they were meant for. */
  readonly hubUrl: string
  readonly recording: Recording
}

/** Runs the deployment once, undisturbed, on a disk that is logged. */
async function record(
  t: TestContext,
  hosts: PowerCutHosts,
  { hasNeighbour, run = {} }: { hasNeighbour: boolean; run?: Partial<ActionRun> },
): Promise<Recorded> {
  const folder = mkdtempSync(join(tmpdir(), 'power-cut-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const base = join(folder, 'base.img')
  makeDisk(base)
  const host = await withMounted(base, mounted => hosts.copy('cut', join(mounted, 'host')))
  const reports = { mark: () => {} }
  const hubUrl = hosts.isMarketplace
    ? (await openGate(t, hosts.stage.hub.url, route => (route === 'report' ? reports.mark() : undefined))).url
    : hosts.stage.hub.url
  await withLoggedDisk(folder, async disk => {
    let next = FIRST_REPORT
    reports.mark = () => disk.mark(next++)
    const stopNeighbour = hasNeighbour ? await startNeighbour(disk.mounted) : async () => {}
    disk.mark(BEGINNING)
    const root = join(disk.mounted, 'host')
    const result = await host.deploy({ ...hosts.inputs, 'hub-url': hubUrl, 'project-root': root }, run)
    disk.mark(END)
    reports.mark = () => {}
    await stopNeighbour()
    assert.equal(result.outputs['outcome'], hosts.outcome, result.log)
  })
  return { hosts, host, hubUrl, recording: readRecording(folder) }
}

async function startNeighbour(mounted: string): Promise<() => Promise<void>> {
  const neighbour = spawn('sh', ['-c', NEIGHBOUR, 'sh', join(mounted, 'neighbour')], { stdio: 'ignore' })
  return async () => {
    neighbour.kill()
    await once(neighbour, 'exit')
  }
}

/** Returns what became of the deployment. A failure says how to rebuild the disk. */
async function cutAndFollow(recorded: Recorded, seed: number): Promise<string> {
  try {
    return await follow(recorded, seed)
  } catch (error) {
    const kept = mkdtempSync(join(tmpdir(), 'failed-power-cut-'))
    for (const name of ['base.img', 'disk.log']) cpSync(join(recorded.recording.folder, name), join(kept, name))
    const advice = `Rebuild it: node test/e2e/harness/power-cut.ts ${kept} ${seed} disk.img`
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

/** The deployment that was cut has one truthful local report, or left no trace; returns its outcome. */
function assertReported(
  root: string,
  next: ActionResult,
  undisturbed: { readonly outcome: string; readonly wasHeard: boolean },
): string {
  const reports = [...readReports(root).values()].filter(({ host_id }) => host_id === 'cut')
  const earlier = reports.filter(({ deployment_id }) => deployment_id !== next.outputs['deployment-id'])
  assert.ok(earlier.length <= 1)
  const outcome = earlier[0]?.outcome
  if (undisturbed.wasHeard) assert.equal(outcome, undisturbed.outcome, 'what the hub heard is what happened')
  assert.ok(outcome !== 'inconsistent' && outcome !== 'interrupted')
  const isNew = outcome === 'success'
  assert.equal(next.outputs['changed'], String(!isNew), next.log)
  return outcome ?? 'without a trace'
}
