import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { backUp } from '../../hub/backup/backup.ts'
import { makeFolder } from '../../hub/new-folder.ts'
import { hubProcess } from './run-cli.ts'
import { newFolder, runHub } from './running-hub.ts'

/** A folder that cannot be created, in a file system that answers ENOENT instead of refusing it. */
const IN_PROC = '/proc/hub/data'

describe('a new folder', () => {
  it('has the mode that was given, and so have its missing parents', t => {
    const folder = newFolder(t)
    makeFolder(join(folder, 'a/b'), 0o700)
    for (const path of ['a', 'a/b']) assert.equal(statSync(join(folder, path)).mode & 0o777, 0o700)
  })

  it('may exist, also behind a symlink, and keeps its mode and content', t => {
    const folder = newFolder(t)
    mkdirSync(join(folder, 'a/b'), { recursive: true, mode: 0o755 })
    symlinkSync('a', join(folder, 'link'))
    for (const path of ['a', 'link', 'link/b']) makeFolder(join(folder, path), 0o700)
    assert.deepEqual([statSync(join(folder, 'a')).mode & 0o777, readdirSync(join(folder, 'a'))], [0o755, ['b']])
  })

  for (const [name, path, code] of [
    ['a file', 'file', 'EEXIST'],
    ['a path below a file', 'file/a', 'ENOTDIR'],
    ['a symlink that leads nowhere', 'dangling', 'EEXIST'],
  ] as const)
    it(`is not ${name}`, t => {
      const folder = newFolder(t, { file: '' })
      symlinkSync('missing', join(folder, 'dangling'))
      assert.throws(() => makeFolder(join(folder, path)), { code })
    })
})

describe('a data folder in /proc', { skip: process.platform !== 'linux' }, () => {
  it('is refused when a hub is created there', async () => {
    const { code, stderr } = await hubProcess('serve', '--port', '0', '--data', IN_PROC)
    assert.deepEqual(
      [code, stderr],
      [1, `${IN_PROC} cannot be the data folder of a hub (ENOENT): name another one with --data.\n`],
    )
  })

  it('is refused when a backup is restored there', async t => {
    const { store } = await runHub(t)
    const file = join(newFolder(t), 'a.tar')
    await backUp(store, file, new AbortController().signal)
    const { code, stderr } = await hubProcess('restore', '--from', file, '--data', IN_PROC)
    assert.equal(code, 1)
    assert.match(stderr, /^[^\n]*\/proc[^\n]*ENOENT[^\n]*\n$/)
  })
})
