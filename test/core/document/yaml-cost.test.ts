import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { whyLeftToCi } from '../../extent.ts'

/** Seconds of processor time, which a busy machine does not lengthen. The 200 or so texts take about 10 s. */
const MAX_CPU_SECONDS = 120
const MAX_MEGABYTES = 100

describe('the cost of YAML that someone else wrote', { skip: process.platform === 'win32' }, () => {
  for (const reader of ['plugin.yaml', 'a bundled plan', 'a plan']) {
    it(`is bounded for ${reader}, whatever it contains`, { skip: whyLeftToCi() }, () => {
      const program = join(import.meta.dirname, 'read-costly-yaml.ts')
      const script = `ulimit -t ${MAX_CPU_SECONDS} && exec "$0" --expose-gc --max-semi-space-size=1 "$1" "$2"`
      const child = spawnSync('sh', ['-c', script, process.execPath, program, reader], { encoding: 'utf8' })
      assert.equal(child.status, 0, `${child.signal} ${child.stderr}`)
      const { megabytes, longestMessage } = JSON.parse(child.stdout)
      if (reader === 'plugin.yaml' || reader === 'a bundled plan')
        assert.ok(megabytes <= MAX_MEGABYTES, `${megabytes} MB`)
      assert.ok(longestMessage < 2000, `a message of ${longestMessage} characters`)
    })
  }
})
