import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { TestContext } from 'node:test'

/** A directory that is removed when the test ends. */
export function temporaryDirectory(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'hub-deploy-test-'))
  t.after(() => rmSync(path, { recursive: true, force: true }))
  return path
}

/** Writes these files, whose paths are relative to `root`, and creates their directories. */
export function writeTree(root: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
}
