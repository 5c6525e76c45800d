import assert from 'node:assert/strict'
import {
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { CompiledCode } from '../../src/start/start.ts'
import { mountMemory, whyNoMounting } from '../e2e/harness/mounts.ts'
import { ownCache } from '../folders.ts'

const BUNDLE = Buffer.from('module.exports = {}')
const CODE = Buffer.from('what Node.js has compiled')

/** A cache in which an earlier run has kept CODE. */
function keptAt(t: TestContext): { folder: string; base: string; own: string; path: string } {
  const cache = ownCache(t)
  keep(cache.own)
  return { ...cache, path: join(cache.own, 'compiled') }
}

/** Keeps code as a run of a new kind does. */
function keep(folder: string | undefined, code = CODE): void {
  keptRuns += 1
  keepOf(`run ${keptRuns}`, folder, code)
}

let keptRuns = 0

function keepOf(run: string | undefined, folder: string | undefined, code: Buffer): void {
  const compiled = new CompiledCode(folder)
  compiled.read(BUNDLE)
  compiled.keep(run, () => code)
}

/** For each run, the index of the run whose code is kept after it. */
function contributors(folder: string, runs: readonly (string | undefined)[]): (number | undefined)[] {
  return runs.map((run, at) => {
    keepOf(run, folder, Buffer.from([at]))
    return new CompiledCode(folder).read(BUNDLE)?.[0]
  })
}

function read(folder: string | undefined, bundle = BUNDLE): string | undefined {
  return new CompiledCode(folder).read(bundle)?.toString()
}

/** Changes that a crash, an operator or another user may make to the file. */
const CHANGES: Record<string, (path: string, folder: string) => void> = {
  'is empty': path => truncateSync(path),
  'lacks its last byte': path => truncateSync(path, statSync(path).size - 1),
  'has an extra byte': path => writeFileSync(path, '\0', { flag: 'a' }),
  'is shorter than a digest': path => truncateSync(path, 20),
  'consists of zeros': path => writeFileSync(path, Buffer.alloc(statSync(path).size)),
  'can be read by its group': path => chmodSync(path, 0o640),
  'can be written by every user': path => chmodSync(path, 0o602),
  'has a second name': (path, folder) => linkSync(path, join(folder, 'second')),
  'is a symlink to the real file'(path, folder) {
    renameSync(path, join(folder, 'real'))
    symlinkSync(join(folder, 'real'), path)
  },
  'is a directory'(path) {
    rmSync(path)
    mkdirSync(path)
  },
}

describe('the compiled code of a user', () => {
  it('is the code that an earlier run kept for this bundle, in one private file', t => {
    const { own, path } = keptAt(t)
    assert.equal(read(own), CODE.toString())
    assert.deepEqual(readdirSync(own), ['compiled'])
    assert.equal(statSync(path).mode & 0o7777, 0o600)
  })

  it('is replaced, so that it never grows', t => {
    const { own } = keptAt(t)
    keep(own, Buffer.from('newer'))
    assert.deepEqual([read(own), readdirSync(own)], ['newer', ['compiled']])
  })

  it('leaves no file of a process that was killed while it wrote one', t => {
    const { own } = keptAt(t)
    writeFileSync(join(own, 'compiled.1.00000000-0000-4000-8000-000000000000.tmp'), CODE)
    keep(own, Buffer.from('what Node.js has compiled since'))
    assert.deepEqual(readdirSync(own), ['compiled'])
  })

  it('is not used for another bundle of the same size', t => {
    const { own } = keptAt(t)
    assert.equal(read(own, Buffer.from('module.exports = []')), undefined)
  })

  it('is not used if any of its bytes has changed', t => {
    const { own, path } = keptAt(t)
    const whole = readFileSync(path)
    for (let at = 0; at < whole.length; at++) {
      const damaged = Buffer.from(whole)
      damaged[at] = (damaged[at] ?? 0) ^ 1
      writeFileSync(path, damaged)
      assert.equal(read(own), undefined, `byte ${at}`)
    }
    writeFileSync(path, whole)
    assert.equal(read(own), CODE.toString())
  })

  for (const [name, change] of Object.entries(CHANGES)) {
    it(`is not used if its file ${name}`, t => {
      const { own, path, folder } = keptAt(t)
      change(path, folder)
      assert.equal(read(own), undefined)
    })
  }

  it('is not used if it is larger than the limit', t => {
    const { own } = ownCache(t)
    keep(own, Buffer.alloc(17 * 1024 * 1024))
    assert.equal(read(own), undefined)
  })

  it('is neither read nor written in a folder to which others can write', t => {
    const { base, own } = keptAt(t)
    for (const path of [own, base]) {
      chmodSync(path, 0o770)
      assert.equal(read(own), undefined)
      keep(own, Buffer.from('newer'))
      chmodSync(path, 0o700)
      assert.equal(read(own), CODE.toString())
    }
  })

  it('is neither read nor written if the environment names no folder', () => {
    keep(undefined)
    assert.equal(read(undefined), undefined)
  })

  it('is kept in a folder that is created for it', t => {
    const { folder } = ownCache(t)
    const own = join(folder, 'home/.cache/hub-deploy')
    keep(own)
    assert.equal(read(own), CODE.toString())
  })

  it('leaves existing files, and no others, when it cannot be kept', t => {
    const { own } = ownCache(t)
    mkdirSync(join(own, 'compiled'))
    keep(own)
    assert.deepEqual(readdirSync(own), ['compiled'])
    assert.ok(statSync(join(own, 'compiled')).isDirectory())
  })

  const KEPT_WITH = { 'size=32m': [], 'size=256m': ['compiled'] }
  for (const [size, kept] of Object.entries(KEPT_WITH)) {
    it(`does not use the last free space of a disk: keeps ${kept[0] ?? 'nothing'} with ${size}`, {
      skip: whyNoMounting(),
    }, t => {
      const own = join(mountMemory(t, size), 'hub-deploy')
      mkdirSync(own, { mode: 0o700 })
      keep(own)
      assert.deepEqual(readdirSync(own), kept)
    })
  }

  it('is completed once by each kind of run', t => {
    const { own } = ownCache(t)
    const runs = ['first install', 'first install', 'update', 'first install', 'update']
    assert.deepEqual(contributors(own, runs), [0, 0, 2, 2, 2])
  })

  it('contains the code of a run without a kind only until a run with a kind keeps its own', t => {
    const { own } = ownCache(t)
    assert.deepEqual(contributors(own, [undefined, undefined, 'update', undefined, 'update']), [0, 0, 2, 2, 2])
  })

  it('is not replaced if the list of the kinds of runs that completed it is full', t => {
    const { own } = keptAt(t)
    keepOf('r'.repeat(96), own, Buffer.from('newer'))
    assert.equal(read(own), CODE.toString())
  })

  it('is replaced by the next run once Node.js has refused it', t => {
    const { own } = ownCache(t)
    keepOf('update', own, CODE)
    const compiled = new CompiledCode(own)
    compiled.read(BUNDLE)
    compiled.discard()
    compiled.keep('update', () => Buffer.from('newer'))
    assert.equal(read(own), 'newer')
  })

  it('begins at a multiple of 8 bytes, so that V8 does not copy it', t => {
    const { own } = keptAt(t)
    assert.equal((new CompiledCode(own).read(BUNDLE)?.byteOffset ?? 1) % 8, 0)
  })
})
