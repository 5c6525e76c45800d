import assert from 'node:assert/strict'
import { listHost } from './evidence.ts'

/** Asserts that a run leaves all installed and retained versions, the settings and `installed.json` as they were. */
export async function assertTouchesNoVersion(root: string, run: () => Promise<void>): Promise<void> {
  const before = listHost(root)
  await run()
  assert.deepEqual(listHost(root), before)
}
