import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import type { TestContext } from 'node:test'

/**
 * A PATH on which a shell script takes the place of the program of that name. Each deployment that installs a version
 * runs `sync -f <staged tree>`, after everything is staged and before anything installed is changed.
 */
export function standIn(t: TestContext, name: string, script: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'stand-in-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  writeFileSync(join(folder, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 })
  return [folder, process.env['PATH']].join(delimiter)
}
