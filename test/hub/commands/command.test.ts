import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { describe, it } from 'node:test'
import { newFolder } from '../running-hub.ts'

const MODULE = resolve(import.meta.dirname, '../../../hub/commands/command.ts')

describe('a command that takes long', () => {
  it('says so on stderr even while it blocks its thread, and ends with its work', t => {
    const path = join(newFolder(t), 'stderr')
    const stderr = openSync(path, 'w')
    const program = `
      import { readFileSync } from 'node:fs'
      import { sayingStillRunning } from ${JSON.stringify(MODULE)}
      const block = async () => {
        while (!readFileSync(${JSON.stringify(path)}, 'utf8').includes('\\n'));
        return 'done'
      }
      console.log(await sayingStillRunning('Publishing', block, 1))`
    const { status, stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', stderr],
      encoding: 'utf8',
      timeout: 60_000,
    })
    closeSync(stderr)
    assert.deepEqual([status, stdout], [0, 'done\n'])
    assert.match(readFileSync(path, 'utf8'), /^(Publishing: still running after \d+ s\n)+$/)
  })
})
