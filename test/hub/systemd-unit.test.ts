import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { describe, it } from 'node:test'
import { hub } from './run-cli.ts'
import { newFolder } from './running-hub.ts'

const UNIT = readFileSync(resolve(import.meta.dirname, '../../examples/systemd/hub-deploy-hub.service'), 'utf8')
const skip = spawnSync('systemd-analyze', ['--version']).status !== 0 && 'systemd-analyze is not on PATH'
/** In tenths of the scale from 0 to 10, where 10 means no protection at all. */
const MAX_EXPOSURE = '20'

describe('the systemd unit of the hub', () => {
  it('is valid, with either of its commands', { skip }, t => {
    const here = UNIT.replaceAll('/opt/hub-deploy/node', process.execPath)
    const commented = here.replace(/^ExecStart=(?:.*\\\n)*.*$/m, '').replace('#ExecStart=', 'ExecStart=')
    assert.notEqual(commented, here)
    for (const text of [here, commented]) {
      const unit = join(newFolder(t), 'hub-deploy-hub.service')
      writeFileSync(unit, text)
      const { status, stderr } = spawnSync('systemd-analyze', ['verify', unit], { encoding: 'utf8' })
      assert.deepEqual([status, stderr], [0, ''])
    }
  })

  it('is confined', { skip }, t => {
    const unit = join(newFolder(t), 'hub-deploy-hub.service')
    writeFileSync(unit, UNIT)
    const args = ['security', '--offline=true', `--threshold=${MAX_EXPOSURE}`, unit]
    const { status, stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' })
    assert.equal(status, 0, stdout)
  })

  it('uses options that the hub has', async () => {
    const { stdout } = await hub('serve', '--help')
    const used = [...UNIT.matchAll(/ (--[a-z-]+)/g)].map(([, option]) => option ?? '')
    assert.ok(used.length >= 5)
    for (const option of new Set(used)) assert.ok(stdout.includes(`  ${option} `), option)
  })
})
