import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  fstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { NotReadable, openBelowSync, openPrivateFileSync } from '../../../src/install/files/open.ts'
import { temporaryDirectory } from '../../folders.ts'
import { makeSwappable, startSwapper, whyNoSwapper } from './folder-swapper.ts'

const ATTEMPTS = 2000

function readBelow(folder: string, path: string): string {
  const fd = openBelowSync(folder, path)
  try {
    return readFileSync(fd, 'utf8')
  } finally {
    closeSync(fd)
  }
}

describe('openBelowSync', () => {
  it('opens a file by its path relative to the folder or by its absolute path, even if the folder itself is a symlink', t => {
    const folder = temporaryDirectory(t)
    mkdirSync(join(folder, 'real/a/b'), { recursive: true })
    writeFileSync(join(folder, 'real/a/b/file'), 'content')
    symlinkSync('real', join(folder, 'link'))
    for (const root of [join(folder, 'real'), join(folder, 'link')]) {
      for (const path of ['a/b/file', './a//b/file', join(root, 'a/b/file')])
        assert.equal(readBelow(root, path), 'content')
    }
  })

  it('refuses anything but a regular file below the folder, without following a symlink', t => {
    const folder = temporaryDirectory(t)
    mkdirSync(join(folder, 'a'))
    writeFileSync(join(folder, 'a/file'), 'content')
    symlinkSync('a', join(folder, 'folder-link'))
    symlinkSync('file', join(folder, 'a/link'))
    const paths = ['', '.', 'a', 'none', 'a/none', 'a/file/x', '..', 'a/../a/file', '/etc/passwd', 'a/link']
    for (const path of [...paths, 'folder-link/file', `${folder}-next/file`, 'a/fi\0le'])
      assert.throws(() => openBelowSync(folder, path), NotReadable, path)
  })

  it('does not open a device or wait for a pipe', { skip: process.getuid?.() === 0 ? false : 'needs root' }, t => {
    const folder = temporaryDirectory(t)
    execFileSync('mknod', [join(folder, 'zero'), 'c', '1', '5'])
    execFileSync('mkfifo', [join(folder, 'pipe')])
    for (const name of ['zero', 'pipe']) assert.throws(() => openBelowSync(folder, name), NotReadable)
  })

  it('never leaves the folder while another user swaps subfolders for symlinks', {
    skip: whyNoSwapper(),
  }, async t => {
    const root = temporaryDirectory(t)
    chmodSync(root, 0o755)
    const [outside, work] = [join(root, 'outside'), join(root, 'work')]
    mkdirSync(join(outside, 'deeper'), { recursive: true })
    writeFileSync(join(outside, 'deeper/file'), 'secret of the host')
    makeSwappable(work)
    for (let n = 0; n < 8; n++) writeFileSync(join(work, `s${n}/deeper/file`), 'content')
    const swapper = startSwapper(t, outside)
    await swapper.enter(work)
    const found = new Set<string>()
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      try {
        found.add(readBelow(work, `s${attempt % 8}/deeper/file`))
      } catch (error) {
        if (!(error instanceof NotReadable)) throw error
        found.add('refused')
      }
    }
    await swapper.end()
    assert.ok(!found.has('secret of the host'), [...found].join(', '))
    t.diagnostic(`found: ${[...found].sort().join(', ')}`)
  })
})

describe('openPrivateFileSync', () => {
  it('opens a file without a name, which no other process can open or replace', t => {
    const folder = temporaryDirectory(t)
    const file = openPrivateFileSync(folder)
    t.after(() => file.close())
    writeSync(file.fd, 'bytes')
    const { nlink, mode, size } = fstatSync(file.fd)
    assert.deepEqual([nlink, mode & 0o777, size], [0, 0o600, 5])
    assert.deepEqual(readdirSync(folder), [])
  })
})
