import assert from 'node:assert/strict'
import { chmodSync, lchownSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { isTrustedFolder } from '../../src/start/trusted-folder.ts'
import { ownRoot } from './own-root.ts'

const STRANGER = 54_321
const asRoot = process.getuid?.() === 0 ? false : 'only root can give files to another user'

/** What another user could have prepared, or could still change. */
const STRANGE: Record<string, { change: (host: ReturnType<typeof ownRoot>) => void; skip?: string | false }> = {
  'no folder': { change: ({ own }) => rmSync(own, { recursive: true }) },
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
  'a folder that its group can write': { change: ({ own }) => chmodSync(own, 0o770) },
  'a root that its group can write': { change: ({ root }) => chmodSync(root, 0o775) },
  'a root that every user can write, though sticky': { change: ({ root }) => chmodSync(root, 0o1777) },
  'a root in a folder that its group can write': { change: ({ folder }) => chmodSync(folder, 0o770) },
  'a symlink to a root, in a folder that every user can write': {
    change({ folder, root }) {
      const open = join(folder, 'open')
      mkdirSync(open)
      renameSync(root, join(open, 'real'))
      symlinkSync(join(open, 'real'), root)
      chmodSync(open, 0o777)
    },
  },
  "another user's folder": { change: ({ own }) => lchownSync(own, STRANGER, STRANGER), skip: asRoot },
  "another user's root": { change: ({ root }) => lchownSync(root, STRANGER, STRANGER), skip: asRoot },
  "a root in another user's folder": { change: ({ folder }) => lchownSync(folder, STRANGER, STRANGER), skip: asRoot },
  "another user's symlink to a root": {
    change({ folder, root }) {
      renameSync(root, join(folder, 'real'))
      symlinkSync('real', root)
      lchownSync(root, STRANGER, STRANGER)
    },
    skip: asRoot,
  },
}

describe('isTrustedFolder', () => {
  it('trusts a folder that is ours alone', t => {
    assert.equal(isTrustedFolder(ownRoot(t).own), true)
  })

  it('trusts one below a sticky folder in which every user can write, where the next folder is ours', t => {
    const { folder, own } = ownRoot(t)
    chmodSync(folder, 0o1777)
    assert.equal(isTrustedFolder(own), true)
  })

  it('trusts one to which a symlink of ours leads', t => {
    const { folder, root, own } = ownRoot(t)
    renameSync(root, join(folder, 'real'))
    symlinkSync('real', root)
    assert.equal(isTrustedFolder(own), true)
  })

  for (const [name, { change, skip = false }] of Object.entries(STRANGE)) {
    it(`does not trust ${name}`, { skip }, t => {
      const host = ownRoot(t)
      change(host)
      assert.equal(isTrustedFolder(host.own), false)
    })
  }
})
