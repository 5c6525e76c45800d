import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import type { ActionResult } from '../../../local/runner.ts'
import { byExtent } from '../../extent.ts'
import { assertNoSecret, type Listing, listLasting, readReports } from '../harness/evidence.ts'
import { signal } from '../harness/processes.ts'
import { countOutcomes } from '../harness/random.ts'
import { assertTakenOver, openSweepHosts, type SweepHost, type SweepHosts } from '../harness/sweep-hosts.ts'

const KILLS = Number(process.env['RANDOM_KILLS'] ?? byExtent({ sample: 2, ci: 30 }))
const SEED = Number(process.env['RANDOM_SEED'] ?? randomInt(1_000_000))

describe('a deployment killed at any time', () => {
  let hosts: SweepHosts
  let reference: Listing
  let undisturbedMs: number

  before(async () => {
    hosts = await openSweepHosts()
    const host = hosts.copy('reference')
    const started = performance.now()
    assert.equal((await host.update()).exitCode, 0)
    undisturbedMs = performance.now() - started
    reference = listLasting(host.root)
  })

  after(() => hosts.close())

  it(`is finished by the next run, ${KILLS} times (RANDOM_SEED=${SEED})`, async t => {
    t.diagnostic(`RANDOM_SEED=${SEED} RANDOM_KILLS=${KILLS}, an undisturbed run takes ${Math.round(undisturbedMs)} ms`)
    const random = createRandom(SEED)
    const outcomes: string[] = []
    for (let kill = 0; kill < KILLS; kill++) outcomes.push(await killAndTakeOver(hosts.copy(`killed-${kill}`), random))
    t.diagnostic(`the killed deployments ended: ${countOutcomes(outcomes)}`)
  })

  /**
   * Kills the deployment, and in about half of the cases also the next run, which recovers it. Returns the final
   * outcome of the first deployment.
   */
  async function killAndTakeOver(host: SweepHost, random: () => number): Promise<string> {
    const killed = await killAfter(host, random() * undisturbedMs)
    const deploymentId = killed.outputs['deployment-id']
    const hasBegun = isJournaled(host.root, deploymentId)
    const second = random() < 0.5 ? await killAfter(host, random() * undisturbedMs) : undefined
    await assertTakenOver({ host, hub: hosts.stage.store, reference, deploymentId, hasBegun })
    assertNoSecret(hosts.secrets, [host.root, host.workspace.temp], [killed.log, second?.log ?? ''])
    return readReports(host.root).get(deploymentId ?? '')?.outcome ?? 'not begun'
  }
})

async function killAfter(host: SweepHost, ms: number): Promise<ActionResult> {
  const ended = new AbortController()
  const result = await host.update({
    onStart: pid => {
      setTimeout(ms, undefined, { signal: ended.signal }).then(
        () => signal(pid, 'SIGKILL'),
        () => {},
      )
    },
  })
  ended.abort()
  return result
}

/**
 * True if the host's journal contains the complete first record of this deployment. Call this before another run works
 * on the host.
 */
function isJournaled(root: string, deploymentId: string | undefined): boolean {
  const journal = join(root, '.hub-deploy/journal.jsonl')
  if (deploymentId === undefined || !existsSync(journal)) return false
  const [begin, rest] = readFileSync(journal, 'utf8').split('\n', 2)
  return rest !== undefined && (begin?.includes(deploymentId) ?? false)
}

/** Mulberry32: equal seeds give equal numbers in [0, 1). */
function createRandom(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
