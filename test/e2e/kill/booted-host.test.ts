import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { describe, it } from 'node:test'
import { temporaryDirectory } from '../../folders.ts'
import { boot } from '../harness/booted-host.ts'

describe('a booted machine', () => {
  for (const [end, how] of [
    ['exit 3', 'exit code 3'],
    ['kill -KILL $$', 'SIGKILL'],
  ])
    it(`is reported with ${how} if it ends too early`, async t => {
      const folder = temporaryDirectory(t)
      writeFileSync(join(folder, 'setpriv'), `#!/bin/sh\n${end}\n`, { mode: 0o755 })
      const before = process.env['PATH'] ?? ''
      process.env['PATH'] = [folder, before].join(delimiter)
      const machine = boot({ folder, units: {}, enable: [] })
      process.env['PATH'] = before
      await assert.rejects(machine.read('states'), { message: `The booted machine ended with ${how}. Its output: ` })
    })
})
