import assert from 'node:assert/strict'
import type { Store } from '../../../hub/store.ts'
import {
  assertNothingStrays,
  assertOneStory,
  assertReported,
  assertSettled,
  type Listing,
  listLasting,
  readReports,
} from './invariants.ts'
import type { SweepHost } from './sweep-hosts.ts'

export interface TakeOver {
  host: SweepHost
  hub: Store
  /** The lasting files of a host that was updated undisturbed. */
  reference: Listing
  /** The id of the deployment that was cut off; undefined if the run had not yet set that output. */
  deploymentId: string | undefined
  /** True if the journal certainly contains that deployment's beginning. */
  hasBegun: boolean
}

/**
 * Asserts that the next normal update succeeds by itself and leaves the same files as an undisturbed update, including
 * the replaced version's snapshot. Also asserts that the deployment that was cut off is reported once, with its real
 * outcome.
 */
export async function assertTakenOver({ host, hub, reference, deploymentId, hasBegun }: TakeOver): Promise<void> {
  const next = await host.update()
  const { changed, outcome, previous_version } = assertReported(host.root, next)
  assert.equal(outcome, 'success', next.log)
  assert.deepEqual(listLasting(host.root), reference)
  const reports = readReports(host.root)
  assert.ok(!hasBegun || reports.has(deploymentId ?? ''), 'a deployment that has begun must have a local report')
  const earlier = [...reports.values()].filter(({ deployment_id }) => deployment_id !== next.outputs['deployment-id'])
  const wasNew = earlier.some(({ outcome, version }) => outcome === 'success' && version === '2.0.0')
  assert.deepEqual([changed, previous_version], wasNew ? [false, '2.0.0'] : [true, '1.0.0'])
  assertNothingStrays(host.root)
  assertOneStory(host.root, hub)
  await assertSettled(host.root, () => host.update())
}
