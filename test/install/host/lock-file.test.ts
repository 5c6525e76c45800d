import assert from 'node:assert/strict'
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { lstatIfPresentSync } from '../../../src/install/files/walk.ts'
import { type Holder, readLock, release, removeDeadMarks, tryTake } from '../../../src/install/host/lock-file.ts'
import { readOwnIdentity } from '../../../src/install/host/process-identity.ts'
import { temporaryDirectory } from '../../folders.ts'
import { failCalls } from '../failing-calls.ts'

const HOLDER_ID = '0b3a8a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
const OTHER_ID = '1c4a8a52-7a0a-4d4b-9d53-6f6a3f6d1b22'
const OWN_ID = '2d5a8a52-7a0a-4d4b-9d53-6f6a3f6d1b33'
const GONE = 2 ** 31 - 1
/**
 * The start of the SHA-256 of an empty file. A process that has read an empty lock file names its mark after this hash.
 */
const EMPTY = 'e3b0c44298fc1c149afbf4c8996fb924'

function self(more: Partial<Holder> = {}): Holder {
  const nothing = { kernel_lock: null, run_url: null, deployment: null }
  return { ...readOwnIdentity(), id: OWN_ID, ...nothing, since: 'now', ...more }
}

function holder(more: Partial<Holder> = {}): string {
  return JSON.stringify(self({ id: HOLDER_ID, ...more }))
}

describe('tryTake', () => {
  it('waits for a live process that has read the half-written file, and takes the lock once that process gives up', t => {
    const folder = temporaryDirectory(t)
    const path = join(folder, 'lock')
    const mark = `${path}.takeover-${EMPTY}`
    writeFileSync(mark, holder({ id: OTHER_ID }))
    assert.equal(tryTake(path, self()), false)
    assert.equal(readLock(path)?.id, OWN_ID)
    release(mark, OTHER_ID)
    assert.equal(tryTake(path, self()), true)
  })

  it('does not wait for a process that was killed', t => {
    const path = join(temporaryDirectory(t), 'lock')
    writeFileSync(`${path}.takeover-${EMPTY}`, holder({ id: OTHER_ID, pid: GONE }))
    assert.equal(tryTake(path, self()), true)
  })

  it('does not have the lock when another process has replaced the file', t => {
    const path = join(temporaryDirectory(t), 'lock')
    writeFileSync(`${path}.takeover-${EMPTY}`, holder({ id: OTHER_ID }))
    assert.equal(tryTake(path, self()), false)
    writeFileSync(path, holder({ id: OTHER_ID }))
    release(`${path}.takeover-${EMPTY}`, OTHER_ID)
    assert.equal(tryTake(path, self()), false)
    assert.equal(readLock(path)?.id, OTHER_ID)
  })

  it('does not have the lock when another process has replaced the file while this one was writing it', t => {
    const path = join(temporaryDirectory(t), 'lock')
    const other = self({ id: OTHER_ID })
    let isOther: boolean | undefined
    const slow = {
      ...self(),
      // Called while the lock file exists but is still empty.
      toJSON() {
        isOther ??= tryTake(path, other)
        return self()
      },
    }
    assert.equal(tryTake(path, slow), false)
    assert.equal(isOther, true)
    assert.equal(readLock(path)?.id, OTHER_ID)
  })

  it('makes no second link to a file, so that a killed process never leaves a file with two names', t => {
    const folder = temporaryDirectory(t)
    const path = join(folder, 'lock')
    assert.equal(tryTake(path, self()), true)
    writeFileSync(path, holder({ pid: GONE }))
    assert.equal(tryTake(path, self()), true)
    assert.deepEqual(readdirSync(folder), ['lock'])
    assert.equal(JSON.parse(readFileSync(path, 'utf8')).id, OWN_ID)
  })
})

describe('tryTake on a disk without any space', () => {
  const RESERVE_BYTES = 4096

  /** A folder in which no lock and no mark can be created. */
  function openFull(t: TestContext, code: string) {
    const folder = temporaryDirectory(t)
    const [path, reserve] = ['lock', 'reserve'].map(name => join(folder, name)) as [string, string]
    const mark = `${path}.takeover-${HOLDER_ID}`
    for (const created of [path, mark]) failCalls(t, 'openSync', created, { code, isCreation: true })
    const writeReserve = (): number => {
      writeFileSync(reserve, Buffer.alloc(RESERVE_BYTES, 7))
      return lstatSync(reserve).ino
    }
    return { folder, path, reserve, mark, writeReserve }
  }

  for (const code of ['ENOSPC', 'EDQUOT']) {
    it(`makes the reserve the lock, in place, and the released lock the reserve (${code})`, t => {
      const { folder, path, reserve, writeReserve } = openFull(t, code)
      const ino = writeReserve()
      assert.equal(tryTake(path, self(), reserve), true)
      assert.deepEqual(readdirSync(folder), ['lock'])
      assert.deepEqual([lstatSync(path).ino, lstatSync(path).size, readLock(path)?.id], [ino, RESERVE_BYTES, OWN_ID])
      release(path, OWN_ID, reserve)
      assert.deepEqual(readdirSync(folder), ['reserve'])
      assert.deepEqual([lstatSync(reserve).ino, lstatSync(reserve).size], [ino, RESERVE_BYTES])
    })

    it(`takes over from a dead holder with the reserve, and without it in place (${code})`, t => {
      const { folder, path, reserve, writeReserve } = openFull(t, code)
      const ino = writeReserve()
      for (let time = 1; time <= 2; time++) {
        const dead = self({ id: HOLDER_ID, pid: GONE })
        writeFileSync(path, JSON.stringify(dead).padEnd(lstatIfPresentSync(path)?.size ?? 0))
        assert.equal(tryTake(path, self({ kernel_lock: '7' }), reserve), true)
        assert.deepEqual(readdirSync(folder), ['lock'])
        assert.deepEqual([lstatSync(path).ino, readLock(path)?.id], [ino, OWN_ID])
      }
    })
  }

  it('takes the reserve that a killed process had claimed', t => {
    const { folder, path, reserve, writeReserve } = openFull(t, 'ENOSPC')
    writeReserve()
    renameSync(reserve, `${path}.${GONE}.${OTHER_ID}.tmp`)
    assert.equal(tryTake(path, self(), reserve), true)
    assert.deepEqual(readdirSync(folder), ['lock'])
  })

  it('leaves the lock to a live process that is taking it over', t => {
    const { path, reserve, mark } = openFull(t, 'ENOSPC')
    writeFileSync(path, holder({ pid: GONE }))
    writeFileSync(mark, holder({ id: OTHER_ID }))
    assert.equal(tryTake(path, self({ kernel_lock: '7' }), reserve), false)
    assert.equal(readLock(path)?.id, HOLDER_ID)
  })

  it('fails without a reserve and without a kernel lock', t => {
    const { path, reserve } = openFull(t, 'ENOSPC')
    assert.throws(() => tryTake(path, self(), reserve), { code: 'ENOSPC' })
    writeFileSync(path, holder({ pid: GONE }))
    assert.throws(() => tryTake(path, self(), reserve), { code: 'ENOSPC' })
  })
})

describe('removeDeadMarks', () => {
  const temporaryOf = (pid: number): string => `lock.${pid}.${OTHER_ID}.tmp`
  const files: Record<string, { name: string; content: () => string; stays: boolean }> = {
    'the mark of a dead take-over': {
      name: `lock.takeover-${HOLDER_ID}`,
      content: () => holder({ pid: GONE }),
      stays: false,
    },
    'the mark of a live take-over': { name: `lock.takeover-${HOLDER_ID}`, content: () => holder(), stays: true },
    'the file of a waiter that died': { name: temporaryOf(GONE), content: () => holder({ pid: GONE }), stays: false },
    'the file of a live waiter': { name: temporaryOf(process.pid), content: () => holder(), stays: true },
    'the file of a waiter on another host': {
      name: temporaryOf(GONE),
      content: () => holder({ pid: GONE, hostname: 'elsewhere' }),
      stays: true,
    },
    'the file of a waiter in another pid namespace': {
      name: temporaryOf(GONE),
      content: () => holder({ pid: GONE, pid_namespace: 'pid:[1]' }),
      stays: true,
    },
    'the half-written file of a dead process': { name: temporaryOf(GONE), content: () => '', stays: false },
    'the file that a live process is writing': {
      name: temporaryOf(process.pid),
      content: () => '',
      stays: true,
    },
    'the lock itself': { name: 'lock', content: () => holder({ pid: GONE }), stays: true },
    'an unrelated file': { name: 'locksmith', content: () => '', stays: true },
  }
  for (const [what, { name, content, stays }] of Object.entries(files)) {
    it(`${stays ? 'leaves' : 'removes'} ${what}`, async t => {
      const folder = temporaryDirectory(t)
      writeFileSync(join(folder, name), content())
      removeDeadMarks(join(folder, 'lock'), self())
      assert.equal(existsSync(join(folder, name)), stays)
    })
  }

  it('leaves anything but a file alone', t => {
    const folder = temporaryDirectory(t)
    mkdirSync(join(folder, 'lock.takeover-folder'))
    removeDeadMarks(join(folder, 'lock'), self())
    assert.deepEqual(readdirSync(folder), ['lock.takeover-folder'])
  })
})
