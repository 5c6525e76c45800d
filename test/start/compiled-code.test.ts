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
import { CompiledCode } from '../../src/start/compiled-code.ts'
import { mountMemory, whyNoMounting } from '../e2e/harness/mounts.ts'
import { ownRoot } from './own-root.ts'

const BUNDLE = Buffer.from('module.exports = {}')
const CODE = Buffer.from('what Node.js has compiled')

/** A root where an earlier run has kept this code. */
function keptAt(t: TestContext): { folder: string; root: string; own: string; path: string } {
  const host = ownRoot(t)
  keep(host.root)
  return { ...host, path: join(host.own, 'compiled') }
}

function keep(root: string, code = CODE): void {
  const compiled = new CompiledCode(root)
  compiled.read(BUNDLE)
  compiled.keep(() => code)
}

function read(root: string | undefined, bundle = BUNDLE): string | undefined {
  return new CompiledCode(root).read(bundle)?.toString()
}

/** What a crash, an operator or another user may leave in the file's place. */
const CHANGES: Record<string, (path: string, folder: string) => void> = {
  'is empty': path => truncateSync(path),
  'lacks its last byte': path => truncateSync(path, statSync(path).size - 1),
  'has a byte more': path => writeFileSync(path, '\0', { flag: 'a' }),
  'is shorter than a digest': path => truncateSync(path, 20),
  'consists of zeros': path => writeFileSync(path, Buffer.alloc(statSync(path).size)),
  'can be read by its group': path => chmodSync(path, 0o640),
  'can be written by every user': path => chmodSync(path, 0o602),
  'has another name': (path, folder) => linkSync(path, join(folder, 'second')),
  'is a symlink to it'(path, folder) {
    renameSync(path, join(folder, 'real'))
    symlinkSync(join(folder, 'real'), path)
  },
  'is a directory'(path) {
    rmSync(path)
    mkdirSync(path)
  },
}

describe('the compiled code of a project root', () => {
  it('is what an earlier run kept for this bundle, in one file that is ours alone', t => {
    const { root, own, path } = keptAt(t)
    assert.equal(read(root), CODE.toString())
    assert.deepEqual(readdirSync(own), ['compiled'])
    assert.equal(statSync(path).mode & 0o7777, 0o600)
  })

  it('is replaced, so that it never grows', t => {
    const { root, own } = keptAt(t)
    keep(root, Buffer.from('newer'))
    assert.deepEqual([read(root), readdirSync(own)], ['newer', ['compiled']])
  })

  it('is not used for another bundle of the same size', t => {
    const { root } = keptAt(t)
    assert.equal(read(root, Buffer.from('module.exports = []')), undefined)
  })

  it('is not used where any of its bytes has changed', t => {
    const { root, path } = keptAt(t)
    const whole = readFileSync(path)
    for (let at = 0; at < whole.length; at++) {
      const damaged = Buffer.from(whole)
      damaged[at] = (damaged[at] ?? 0) ^ 1
      writeFileSync(path, damaged)
      assert.equal(read(root), undefined, `byte ${at}`)
    }
    writeFileSync(path, whole)
    assert.equal(read(root), CODE.toString())
  })

  for (const [name, change] of Object.entries(CHANGES)) {
    it(`is not used where its file ${name}`, t => {
      const { root, path, folder } = keptAt(t)
      change(path, folder)
      assert.equal(read(root), undefined)
    })
  }

  it('is not used where it is larger than any can be', t => {
    const { root } = ownRoot(t)
    keep(root, Buffer.alloc(17 * 1024 * 1024))
    assert.equal(read(root), undefined)
  })

  it('is neither read nor written where others could write', t => {
    const { root, own } = keptAt(t)
    for (const path of [own, root]) {
      chmodSync(path, 0o770)
      assert.equal(read(root), undefined)
      keep(root, Buffer.from('newer'))
      chmodSync(path, 0o700)
      assert.equal(read(root), CODE.toString())
    }
  })

  it('is neither read nor written without a root, and for one that is a relative path', t => {
    const { folder } = keptAt(t)
    const before = process.cwd()
    process.chdir(folder)
    t.after(() => process.chdir(before))
    assert.deepEqual([read(undefined), read('app'), read('')], [undefined, undefined, undefined])
  })

  it('is kept nowhere where there is no folder yet', t => {
    const { folder } = ownRoot(t)
    mkdirSync(join(folder, 'other'))
    keep(join(folder, 'other'))
    keep(join(folder, 'missing'))
    assert.deepEqual([readdirSync(join(folder, 'other')), readdirSync(folder)], [[], ['app', 'other']])
  })

  it('leaves what is there, and nothing else, when it cannot be kept', t => {
    const { root, own } = ownRoot(t)
    mkdirSync(join(own, 'compiled'))
    keep(root)
    assert.deepEqual(readdirSync(own), ['compiled'])
    assert.ok(statSync(join(own, 'compiled')).isDirectory())
  })

  const KEPT_WITH = { 'size=32m': [], 'size=256m': ['compiled'] }
  for (const [size, kept] of Object.entries(KEPT_WITH)) {
    it(`takes no last space of a disk: ${kept[0] ?? 'nothing'} with ${size}`, { skip: whyNoMounting() }, t => {
      const root = join(mountMemory(t, size), 'app')
      const own = join(root, '.hub-deploy')
      mkdirSync(own, { recursive: true, mode: 0o700 })
      keep(root)
      assert.deepEqual(readdirSync(own), kept)
    })
  }

  it('is not written where nothing new was compiled', t => {
    const { root, path } = keptAt(t)
    const { ino } = statSync(path)
    new CompiledCode(root).keep(() => undefined)
    assert.equal(statSync(path).ino, ino)
  })
})
