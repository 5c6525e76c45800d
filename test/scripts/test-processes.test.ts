import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { globSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { testProcesses } from '../../scripts/test-processes.ts'
import { sampled } from '../extent.ts'

const ROOT = join(import.meta.dirname, '../..')
const TOGETHER = join(ROOT, 'test/together.ts')

describe('the processes of a test run', () => {
  it('run each test file once', () => {
    const files = [...testProcesses().values()].flat()
    assert.deepEqual(files.toSorted(), globSync('test/**/*.test.ts', { cwd: ROOT }).toSorted())
  })

  const ends: Record<string, string> = {
    'ends the process': 'process.exit(0)',
    'fails a test and ends the process in a hook':
      'it("goes wrong", () => assert.fail()); after(() => process.exit(0))',
    'ends the process in a test': 'it("ends", () => process.exit(0))',
    'waits forever': 'it("waits", () => new Promise(() => {}))',
    'awaits something outside its tests': 'await Promise.resolve()',
    'cannot be loaded': 'import "./missing.mjs"',
    'fails a test': 'it("goes wrong", () => assert.fail())',
    'fails after its tests': 'it("ends", () => void process.nextTick(() => assert.fail()))',
  }
  for (const [how, code] of sampled(Object.entries(ends), 4)) {
    it(`fail and name a file that ${how}`, t => {
      const [first, second] = [newTest(t, 'it("passes", () => {})'), newTest(t, code)]
      const { status, stdout } = runTests(t, [first, second], how.startsWith('waits') ? 2000 : undefined)
      assert.equal(status, 1, stdout)
      assert.ok(stdout.includes(second), stdout)
    })
  }

  it('run the hooks of a file only for its own tests', t => {
    const hooks = 'before(() => { globalThis.on = true }); after(() => { globalThis.on = undefined })'
    const files = [newTest(t, `${hooks}; it("has it", () => assert.ok(globalThis.on))`)]
    files.push(newTest(t, 'it("lacks it", () => assert.equal(globalThis.on, undefined))'))
    const { status, stdout } = runTests(t, files)
    assert.equal(status, 0, stdout)
    assert.match(stdout, /^ℹ tests 2$/m)
  })
})

function newTest(t: TestContext, code: string): string {
  const folder = mkdtempSync(join(tmpdir(), 'together-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const imports = 'import assert from "node:assert/strict"\nimport { after, before, it } from "node:test"\n'
  const path = join(folder, 'some.test.mjs')
  writeFileSync(path, `${imports}${code}\n`)
  return path
}

/** Runs the files as `npm test` does, with one process. */
function runTests(t: TestContext, files: readonly string[], timeoutMs?: number) {
  const args = [files, timeoutMs].map(value => JSON.stringify(value)).join(', ')
  const together = newTest(t, `import { runTogether } from '${TOGETHER}'\nrunTogether(${args})`)
  // With this variable, the child would report its tests to the run that this test belongs to.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  return spawnSync(process.execPath, ['--test', '--test-reporter=spec', together], { encoding: 'utf8', env })
}
