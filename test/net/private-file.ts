import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

/** An empty file that is deleted after the test. */
export function openPrivateFile(t: TestContext): { fd: number; read: () => Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'hub-deploy-test-'))
  const path = join(folder, 'artifact')
  const fd = openSync(path, 'wx+')
  t.after(() => {
    closeSync(fd)
    rmSync(folder, { recursive: true })
  })
  return { fd, read: () => readFileSync(path) }
}
