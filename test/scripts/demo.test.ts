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

  it('fits on three screens', () => {
    const [height, width] = [3 * 40, 100]
    assert.ok(lines.length <= height, lines.join('\n'))
    assert.deepEqual(
      lines.filter(line => line.length > width),
      [],
    )
  })

  it('shows the message of the step and the version of the host for each deployment', () => {
    const shown = lines.flatMap((line, index) => {
      if (!line.startsWith('  step')) return []
      const host = lines.slice(index).find(later => later.startsWith('  host')) ?? ''
      return [[/(?<= {2}why {3})\w+/.exec(lines[index + 1] ?? '')?.[0], /greeter \S+(?=[.,])/.exec(host)?.[0]]]
    })
    assert.equal(shown.length, DEPLOYMENTS.length)
    assert.deepEqual(shown, [
      [undefined, 'greeter 1.0.0'],
      [undefined, 'greeter 1.0.0'],
      [undefined, 'greeter 1.1.0'],
      ['signature_mismatch', 'greeter 1.1.0'],
      ['step_failed', 'greeter 1.1.0'],
      [undefined, 'greeter 1.1.0'],
      ['authentication_failed', 'greeter 1.1.0'],
    ])
  })

  it('ends with the fleet and the next commands', () => {
    const end = lines.slice(lines.findIndex(line => line.startsWith('--- The fleet'))).join('\n')
    assert.match(end, /^\| app-1 +greeter +1\.1\.0 +2\.0\.0 rolled_back$/m)
    assert.match(end, /^\| app-1 +clock +1\.0\.0 +1\.0\.0 success$/m)
    assert.match(end, /^npm run try -- --from examples\/plugin /m)
  })

  it('prints nothing that a runner would mistake for a command, and no symbols without a terminal', () => {
    assert.deepEqual(
      lines.filter(line => /^\s*::|##\[|\p{Extended_Pictographic}|[✔✘─]/u.test(line)),
      [],
    )
  })

  it('removes its files', () => {
    assert.deepEqual(readdirSync(folder), [])
  })
})
