import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { DEPLOYMENTS } from '../../scripts/demo/deployments.ts'

const DEMO = join(import.meta.dirname, '../../scripts/demo.ts')

describe('the demo', () => {
  let folder: string
  let lines: string[]
  let status: number | null

  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'demo-test-'))
    const env = { PATH: process.env['PATH'], HOME: process.env['HOME'], TMPDIR: folder }
    const demo = spawnSync(process.execPath, [DEMO], { env, encoding: 'utf8' })
    status = demo.status
    lines = `${demo.stdout}${demo.stderr}`.split('\n')
  })
  after(() => rmSync(folder, { recursive: true, force: true }))

  it('succeeds and says so in its last line', () => {
    assert.equal(status, 0, lines.join('\n'))
    assert.match(lines.at(-2) ?? '', /^All \d+ deployments ended as expected\./)
  })

  it('prints a verified sentence for each deployment', () => {
    assert.equal(lines.filter(line => line.startsWith('✔ ')).length, DEPLOYMENTS.length)
  })

  it('lists all outcomes in its summary', () => {
    const outcomes = lines.filter(line => /^│ \d {2}/.test(line)).map(line => line.split(/ {2,}/).slice(1, 5))
    assert.deepEqual(outcomes, [
      ['plugins/greeter', 'first install of 1.0.0', 'success'],
      ['extensions/clock', 'first install of 1.0.0', 'success'],
      ['plugins/greeter', '1.0.0 → 1.1.0', 'success'],
      ['plugins/greeter', '1.1.0 → 1.2.0', 'failed', 'signature_mismatch'],
      ['plugins/greeter', '1.1.0 → 2.0.0', 'rolled_back', 'step_failed'],
      ['project prj_ShopExample01', 'first install of 1.0.0', 'success'],
      ['project prj_ShopExample01', '1.0.0 → 1.1.0', 'failed', 'authentication_failed'],
    ])
  })

  it('prints nothing that a runner would mistake for a command', () => {
    assert.deepEqual(
      lines.filter(line => /^\s*::|##\[/.test(line)),
      [],
    )
  })

  it('removes its files', () => {
    assert.deepEqual(readdirSync(folder), [])
  })
})
