import assert from 'node:assert/strict'
import { listHost } from './evidence.ts'

/** Asserts that a run leaves every installed version, and every record of it, as it was. */
export async function assertTouchesNoVersion(root: string, run: () => Promise<void>): Promise<void> {
  const before = listHost(root)
  await run()
  assert.deepEqual(listHost(root), before)
}
