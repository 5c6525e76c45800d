import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { loadBundle } from '../../src/start/start.ts'
import { ownCache } from '../folders.ts'

const BUNDLE = '(function (module) { module.exports.act = () => 1 })'

/** A bundle whose compiled code an earlier run has kept in `own`. */
function kept(t: TestContext): ReturnType<typeof ownCache> & { file: string; path: string } {
  const cache = ownCache(t)
  const file = join(cache.folder, 'index.js')
  writeFileSync(file, BUNDLE)
  loadBundle(file, cache.own).keepCompiled()
  return { ...cache, file, path: join(cache.own, 'compiled') }
}

/** True if a run uses the kept code. A run replaces code that it cannot use. */
function isUsed({ file, own, path }: ReturnType<typeof kept>): boolean {
  const before = readFileSync(path)
  loadBundle(file, own).keepCompiled()
  return before.equals(readFileSync(path))
}

describe('loadBundle', () => {
  it('uses the code that an earlier run kept for this bundle, in one private file', t => {
    const host = kept(t)
    assert.ok(isUsed(host))
    assert.deepEqual(readdirSync(host.own), ['compiled'])
    assert.equal(statSync(host.path).mode & 0o7777, 0o600)
  })

  it('does not use the code of another bundle of the same size', t => {
    const host = kept(t)
    writeFileSync(host.file, BUNDLE.replace('1', '2'))
    assert.equal(
      loadBundle(host.file, host.own).exports['act']?.(() => {}),
      2,
    )
    assert.equal(isUsed(host), false)
  })

  it('does not use code of which any byte has changed, or that is torn or too long, and replaces it', t => {
    const host = kept(t)
    const whole = readFileSync(host.path)
    const damages = Array.from(whole, (byte, at) => Buffer.from(whole).fill(byte ^ 1, at, at + 1))
    const torn = [0, 20, 32, whole.length - 1].map(length => whole.subarray(0, length))
    for (const bytes of [...damages, ...torn, Buffer.concat([whole, Buffer.alloc(1)])]) {
      writeFileSync(host.path, bytes)
      assert.equal(isUsed(host), false)
      assert.ok(isUsed(host))
    }
  })

  it('neither reads nor writes code in a folder to which others can write', t => {
    const host = kept(t)
    for (const path of [host.own, host.base]) {
      writeFileSync(host.path, 'damaged')
      chmodSync(path, 0o770)
      assert.ok(isUsed(host))
      chmodSync(path, 0o700)
      assert.equal(isUsed(host), false)
    }
  })

  it('creates the folder only to keep code', t => {
    const { file, folder } = kept(t)
    const own = join(folder, 'home/.cache/hub-deploy')
    const { keepCompiled } = loadBundle(file, own)
    assert.throws(() => statSync(own), { code: 'ENOENT' })
    keepCompiled()
    assert.deepEqual(readdirSync(own), ['compiled'])
  })

  it('works if the code cannot be kept', t => {
    const { file, folder } = kept(t)
    const own = join(folder, 'blocked')
    mkdirSync(join(own, 'compiled'), { recursive: true, mode: 0o700 })
    for (const cache of [own, undefined]) {
      const { exports, keepCompiled } = loadBundle(file, cache)
      keepCompiled()
      assert.equal(
        exports['act']?.(() => {}),
        1,
      )
    }
  })
})
