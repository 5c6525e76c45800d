import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it } from 'node:test'
import {
  awaitAll,
  createFile,
  makeOpenDirectorySync,
  makePrivateDirectories,
  ownerOfTemporary,
  replaceFile,
  syncTrees,
  temporaryName,
  writeNewFile,
} from '../../../src/install/files/durable.ts'
import { openPrivateFileSync } from '../../../src/install/files/open.ts'
import { whyNoStrace } from '../../e2e/harness/strace.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'

describe('replaceFile', () => {
  it('replaces a whole file, with mode 0600, and leaves nothing next to it', async t => {
    const folder = temporaryDirectory(t)
    const path = join(folder, 'file')
    writeFileSync(path, 'old', { mode: 0o644 })
    await replaceFile(path, 'new')
    assert.equal(readFileSync(path, 'utf8'), 'new')
    assert.equal(statSync(path).mode & 0o777, 0o600)
    assert.deepEqual(readdirSync(folder), ['file'])
  })

  it('replaces a symlink itself and not its target', async t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { target: 'theirs' })
    symlinkSync('target', join(folder, 'file'))
    await replaceFile(join(folder, 'file'), 'new')
    assert.equal(readFileSync(join(folder, 'target'), 'utf8'), 'theirs')
  })

  it('leaves no file behind when it fails', async t => {
    const folder = temporaryDirectory(t)
    mkdirSync(join(folder, 'taken'))
    await assert.rejects(replaceFile(join(folder, 'taken'), 'new'), { code: 'EISDIR' })
    assert.deepEqual(readdirSync(folder), ['taken'])
  })
})

describe('createFile', () => {
  it('creates a missing file and leaves an existing one alone', async t => {
    const folder = temporaryDirectory(t)
    const path = join(folder, 'file')
    assert.deepEqual([await createFile(path, 'one'), await createFile(path, 'two')], [true, false])
    assert.equal(readFileSync(path, 'utf8'), 'one')
    assert.deepEqual(readdirSync(folder), ['file'])
  })
})

describe('writeNewFile', () => {
  it('creates a file of mode 600, and never replaces one', async t => {
    const path = join(temporaryDirectory(t), 'file')
    await writeNewFile(path, 'text')
    assert.equal(statSync(path).mode & 0o777, 0o600)
    await assert.rejects(writeNewFile(path, 'other'), { code: 'EEXIST' })
    assert.equal(readFileSync(path, 'utf8'), 'text')
  })
})

describe('makePrivateDirectories', () => {
  it('makes a missing directory with mode 0700, and leaves an existing one alone', async t => {
    const path = join(temporaryDirectory(t), 'a')
    for (let time = 0; time < 2; time++) await makePrivateDirectories(path)
    assert.equal(statSync(path).mode & 0o777, 0o700)
  })

  it('fails if no directory can be created, even in an unusual file system', async () => {
    await assert.rejects(makePrivateDirectories('/proc/sys/hub-deploy'), { syscall: 'mkdir' })
  })
})

describe('makeOpenDirectorySync', () => {
  for (const umask of [0o000, 0o022, 0o077]) {
    it(`gives mode 0755 under umask ${umask.toString(8)}, and keeps the setgid bit that the parent passes on`, t => {
      const parent = temporaryDirectory(t)
      chmodSync(parent, 0o2755)
      const before = process.umask(umask)
      t.after(() => process.umask(before))
      makeOpenDirectorySync(join(parent, 'a'))
      assert.equal(statSync(join(parent, 'a')).mode & 0o7777, 0o2755)
      assert.equal(process.umask(umask), umask)
    })
  }
})

describe('syncTrees', () => {
  it('syncs file by file if there is no sync program', async t => {
    const root = temporaryDirectory(t)
    writeTree(root, { a: '1', 'b/c': '2' })
    symlinkSync('/nowhere', join(root, 'link'))
    const before = process.env['PATH']
    process.env['PATH'] = root
    t.after(() => {
      process.env['PATH'] = before
    })
    assert.equal(await syncTrees([root]), 'fsync')
  })

  it('throws if the trees do not exist', async t => {
    await assert.rejects(syncTrees([join(temporaryDirectory(t), 'gone')]), { code: 'ENOENT' })
  })
})

describe('openPrivateFileSync', () => {
  it('has no name by which another process could open it', t => {
    const folder = temporaryDirectory(t)
    const file = openPrivateFileSync(folder)
    assert.deepEqual(readdirSync(folder), [])
    file.close()
  })

  it('reports a problem with the folder', t => {
    assert.throws(() => openPrivateFileSync(join(temporaryDirectory(t), 'gone')), {
      code: 'host_not_writable',
      message: /temporary folder .*gone is not a folder \(ENOENT\): create it, or correct RUNNER_TEMP/,
    })
  })
})

describe('createFile on a file system without hard links', { skip: whyNoStrace() }, () => {
  for (const errno of ['EPERM', 'EOPNOTSUPP', 'ENOSYS']) {
    it(`creates a complete file, and never replaces one, after ${errno}`, t => {
      const path = join(temporaryDirectory(t), 'file')
      const program = join(import.meta.dirname, 'create-two-files.ts')
      const strace = ['-f', '-qq', '-o', '/dev/null', '-e', `inject=?link,linkat:error=${errno}`]
      const { stdout, stderr } = spawnSync('strace', [...strace, process.execPath, program, path], { encoding: 'utf8' })
      assert.equal(stdout.trim(), '[true,false]', stderr)
      assert.equal(readFileSync(path, 'utf8'), 'first')
      assert.equal(statSync(path).mode & 0o777, 0o600)
      assert.deepEqual(readdirSync(dirname(path)), ['file'])
    })
  }
})

describe('temporaryName', () => {
  it('identifies the process that made it, as no other name does', () => {
    assert.equal(ownerOfTemporary(temporaryName('/x/report.json')), process.pid)
    for (const name of ['report.json', 'x.tmp', 'x.1.tmp', 'lock', '']) assert.equal(ownerOfTemporary(name), undefined)
  })
})

describe('awaitAll', () => {
  it('returns the result of each piece of work, and plain values as they are', async () => {
    assert.deepEqual(await awaitAll(Promise.resolve('a'), 'b', undefined), ['a', 'b', undefined])
  })

  it('throws the first failure only after all work has ended', async () => {
    const slow = Promise.withResolvers<void>()
    let isOver = false
    const all = awaitAll(slow.promise, Promise.reject(new Error('first')), Promise.reject(new Error('second')))
    const ended = all.catch(error => {
      isOver = true
      return error
    })
    await new Promise(resolve => setImmediate(resolve))
    assert.equal(isOver, false)
    slow.resolve()
    assert.equal((await ended).message, 'first')
  })
})
