import assert from 'node:assert/strict'
import {
  chmodSync,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { cacheFolder, isTrustedFolder, makeTrustedFolder } from '../../src/start/start.ts'
import { ownCache } from '../folders.ts'

const STRANGER = 54_321
const asRoot = process.getuid?.() === 0 ? false : 'only root can give files to another user'

/** Folders that another user could have prepared, or could still change. */
const STRANGE: Record<string, { change: (host: ReturnType<typeof ownCache>) => void; skip?: string | false }> = {
  'a missing folder': { change: ({ own }) => rmSync(own, { recursive: true }) },
  'a file': {
    change({ own }) {
      rmSync(own, { recursive: true })
      writeFileSync(own, '', { mode: 0o600 })
    },
  },
  'a symlink to a folder of ours': {
    change({ own, folder }) {
      renameSync(own, join(folder, 'real'))
      symlinkSync(join(folder, 'real'), own)
    },
  },
  'a folder that others may enter': { change: ({ own }) => chmodSync(own, 0o711) },
  'a group-writable folder': { change: ({ own }) => chmodSync(own, 0o770) },
  'a folder in a group-writable folder': { change: ({ base }) => chmodSync(base, 0o775) },
  'a folder in a world-writable folder, even with the sticky bit': {
    change: ({ base }) => chmodSync(base, 0o1777),
  },
  'a folder two levels below a group-writable folder': { change: ({ folder }) => chmodSync(folder, 0o770) },
  'a folder reached by a symlink into a world-writable folder': {
    change({ folder, base }) {
      const open = join(folder, 'open')
      mkdirSync(open)
      renameSync(base, join(open, 'real'))
      symlinkSync(join(open, 'real'), base)
      chmodSync(open, 0o777)
    },
  },
  "another user's folder": { change: ({ own }) => lchownSync(own, STRANGER, STRANGER), skip: asRoot },
  "a folder in another user's folder": {
    change: ({ base }) => lchownSync(base, STRANGER, STRANGER),
    skip: asRoot,
  },
  "a folder two levels below another user's folder": {
    change: ({ folder }) => lchownSync(folder, STRANGER, STRANGER),
    skip: asRoot,
  },
  "a folder reached by another user's symlink": {
    change({ folder, base }) {
      renameSync(base, join(folder, 'real'))
      symlinkSync('real', base)
      lchownSync(base, STRANGER, STRANGER)
    },
    skip: asRoot,
  },
}

const FOLDERS: [NodeJS.ProcessEnv, string | undefined][] = [
  [{ HOME: '/home/runner' }, '/home/runner/.cache/hub-deploy'],
  [{ HOME: '/home/runner', XDG_CACHE_HOME: '/var/cache/runner' }, '/var/cache/runner/hub-deploy'],
  [{ HOME: '/home/runner', XDG_CACHE_HOME: 'cache' }, '/home/runner/.cache/hub-deploy'],
  [{ HOME: 'runner' }, undefined],
  [{ HOME: '' }, undefined],
  [{}, undefined],
]

describe('cacheFolder', () => {
  for (const [env, folder] of FOLDERS)
    it(`with ${JSON.stringify(env)} is ${folder}`, () => assert.equal(cacheFolder(env), folder))
})

describe('isTrustedFolder', () => {
  it('trusts a folder that only we can use', t => {
    assert.equal(isTrustedFolder(ownCache(t).own), true)
  })

  it('trusts a folder two levels below a world-writable sticky folder, if the folder in between is ours', t => {
    const { folder, own } = ownCache(t)
    chmodSync(folder, 0o1777)
    assert.equal(isTrustedFolder(own), true)
  })

  it('trusts a folder reached by a symlink of ours', t => {
    const { folder, base, own } = ownCache(t)
    renameSync(base, join(folder, 'real'))
    symlinkSync('real', base)
    assert.equal(isTrustedFolder(own), true)
  })

  for (const [name, { change, skip = false }] of Object.entries(STRANGE)) {
    it(`does not trust ${name}`, { skip }, t => {
      const host = ownCache(t)
      change(host)
      assert.equal(isTrustedFolder(host.own), false)
    })
  }
})

describe('makeTrustedFolder', () => {
  it('creates missing folders with mode 0700, and accepts an existing one', t => {
    const { folder, own } = ownCache(t)
    assert.equal(makeTrustedFolder(own), true)
    const deep = join(folder, 'home/.cache/hub-deploy')
    assert.equal(makeTrustedFolder(deep), true)
    for (const path of [deep, join(folder, 'home/.cache'), join(folder, 'home')])
      assert.equal(statSync(path).mode & 0o7777, 0o700)
  })

  it('creates no folder below one that others can write, or in place of a dangling symlink', t => {
    const { folder } = ownCache(t)
    const open = join(folder, 'open')
    mkdirSync(open)
    chmodSync(open, 0o777)
    assert.equal(makeTrustedFolder(join(open, 'cache/hub-deploy')), false)
    symlinkSync(join(folder, 'elsewhere'), join(folder, 'broken'))
    assert.throws(() => makeTrustedFolder(join(folder, 'broken')), { code: 'ENOENT' })
    assert.deepEqual([readdirSync(open), existsSync(join(folder, 'elsewhere'))], [[], false])
  })
})
