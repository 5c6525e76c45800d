import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { ownCache } from '../folders.ts'

/** A bundle with one action, which calls `onInstalled` after TIME microseconds of processor time. */
const BUNDLE = `(function (module) {
  module.exports.act = async onInstalled => {
    const { TIME, KIND } = process.env
    for (let used = 0; used < Number(TIME); ) {
      const { user, system } = process.cpuUsage()
      used = user + system
    }
    onInstalled(KIND)
  }
})`

const START = join(import.meta.dirname, '../../src/start/start.ts')
const LONG = 1_000_000

describe('the start of an action', () => {
  it('keeps the code of a long run only if no other code is kept, because V8 may have dropped some of that code', t => {
    const { folder, base, own } = ownCache(t)
    writeFileSync(join(folder, 'index.js'), BUNDLE)
    const run = (kind: string, time: number): unknown[] => {
      const program = `import { start } from ${JSON.stringify(START)}; await start(${JSON.stringify(folder)}, 'act')`
      const env = { ...process.env, XDG_CACHE_HOME: base, TIME: String(time), KIND: kind }
      execFileSync(process.execPath, ['--input-type=module', '--eval', program], { env })
      const path = join(own, 'compiled')
      const kinds = readFileSync(path).subarray(32, 128).toString()
      return [statSync(path).ino, kinds.trimEnd()]
    }
    const [first, ofFirst] = run('first install', LONG)
    assert.equal(ofFirst, '')
    assert.deepEqual(run('first install', LONG), [first, ''])
    const completed = run('first install', 0)
    assert.equal(completed[1], 'act: first install')
    assert.deepEqual(run('update', LONG), completed)
    assert.equal(run('update', 0)[1], 'act: first install,act: update')
  })
})
