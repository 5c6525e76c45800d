import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parseCommandFile } from '../../local/runner.ts'

/** Runs a step whose deployment never ends, in a separate process. */
function runUnsettled(t: TestContext, how: 'begun' | 'not begun') {
  const folder = mkdtempSync(join(tmpdir(), 'unsettled-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const files = { GITHUB_OUTPUT: join(folder, 'output'), GITHUB_STATE: join(folder, 'state') }
  for (const file of Object.values(files)) writeFileSync(file, '')
  const program = join(import.meta.dirname, 'unsettled-step.ts')
  const env = { PATH: process.env['PATH'] ?? '', ...files }
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, how], { env, encoding: 'utf8' })
  return { status, log: stdout + stderr, outputs: parseCommandFile(readFileSync(files.GITHUB_OUTPUT, 'utf8')) }
}

describe('a step whose deployment never ends', () => {
  for (const [how, outcome] of [
    ['begun', 'interrupted'],
    ['not begun', 'failed'],
  ] as const) {
    it(`fails with internal_error and sets its outputs when the deployment has ${how}`, t => {
      const { status, log, outputs } = runUnsettled(t, how)
      assert.equal(status, 1, log)
      assert.match(log, /^::error title=internal_error::This action stopped before its deployment had ended/m)
      assert.equal(outputs['outcome'], outcome)
      assert.equal(outputs['error-code'], 'internal_error')
    })
  }
})
