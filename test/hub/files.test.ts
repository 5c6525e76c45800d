import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { artifactPath, streamArtifact } from '../../hub/artifacts.ts'
import { backUp } from '../../hub/backup/backup.ts'
import { restoreBackup } from '../../hub/backup/restore.ts'
import { readGivenFile, withExistingStore } from '../../hub/commands/command.ts'
import { makeFolder } from '../../hub/files.ts'
import { readTls } from '../../hub/http/tls.ts'
import { openStore, type Store } from '../../hub/store.ts'
import { isOpen, withoutRoot } from '../folders.ts'
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

const FORBIDDEN = 'cannot be read (EACCES): correct the path or the permissions.'
const ARTIFACT = { sha256: 'a'.repeat(64), size: 5 }

describe('a message about a file that cannot be read', () => {
  it('names the file of an option, and says whether it is missing, a folder or forbidden', async t => {
    const path = forbiddenFile(t)
    const readers = { archive: () => readGivenFile('archive', path), 'tls-cert': () => readTlsCert(path) }
    for (const [option, read] of Object.entries(readers))
      await withoutRoot(async () =>
        assert.throws(read, { status: 400, message: `The file ${path} of --${option} ${FORBIDDEN}` }),
      )
    rmSync(path)
    for (const [option, read] of Object.entries(readers))
      assert.throws(read, { message: `The file ${path} of --${option} does not exist: correct the path.` })
    mkdirSync(path)
    for (const [option, read] of Object.entries(readers))
      assert.throws(read, { message: `The file ${path} of --${option} is a folder: name a file.` })
  })

  it('does not say that a forbidden data folder contains no hub', async t => {
    const { dataDir } = newStore(t)
    chmodSync(dataDir, 0o600)
    await withoutRoot(() =>
      assert.rejects(
        withExistingStore(dataDir, () => 'done'),
        { status: 400, message: `The data folder ${dataDir} ${FORBIDDEN}` },
      ),
    )
    chmodSync(dataDir, 0o700)
  })

  it('names a forbidden backup, and creates no data folder', async t => {
    const path = forbiddenFile(t)
    const folder = newFolder(t)
    await withoutRoot(() =>
      assert.rejects(restoreBackup(path, join(folder, 'data'), new AbortController().signal), {
        status: 400,
        message: `The backup ${path} ${FORBIDDEN}`,
      }),
    )
    assert.deepEqual(readdirSync(folder), [])
  })

  it('says whether an artifact is missing, incomplete or forbidden', async t => {
    const store = newStore(t)
    const path = artifactPath(store, ARTIFACT.sha256)
    const refuses = (problem: string) =>
      assert.rejects(streamArtifact(store, ARTIFACT), { status: 500, message: `The artifact ${path} ${problem}` })
    await refuses('does not exist: publish the same bytes again, or copy the file from a backup.')
    writeFileSync(path, 'byte')
    await refuses('has 4 bytes, not 5: publish the same bytes again, or copy the file from a backup.')
    assert.equal(isOpen(path), false)
    chmodSync(store.dataDir, 0o755)
    chmodSync(join(store.dataDir, 'artifacts'), 0o600)
    const remedies = 'correct the permissions, publish the same bytes again, or copy the file from a backup.'
    await withoutRoot(() => refuses(`cannot be read (EACCES): ${remedies}`))
    chmodSync(join(store.dataDir, 'artifacts'), 0o700)
  })

  it('does not say that a forbidden artifact is damaged when it keeps a backup from being written', async t => {
    const store = newStore(t)
    store.db.exec(`INSERT INTO listings VALUES ('plugin', 'hello', 'Hello');
      INSERT INTO versions (kind, slug, version, sha256, size, signature, published_at)
      VALUES ('plugin', 'hello', '1.0.0', '${ARTIFACT.sha256}', 5, '', '')`)
    const path = artifactPath(store, ARTIFACT.sha256)
    writeFileSync(path, 'bytes')
    chmodSync(store.dataDir, 0o755)
    chmodSync(join(store.dataDir, 'artifacts'), 0o600)
    const folder = newFolder(t)
    chmodSync(folder, 0o777)
    const file = join(folder, 'a.tar')
    await withoutRoot(() =>
      assert.rejects(backUp(store, file, new AbortController().signal), ({ message }: Error) =>
        message.startsWith(`The backup ${file} cannot be written (${path}: EACCES): `),
      ),
    )
    chmodSync(join(store.dataDir, 'artifacts'), 0o700)
    assert.deepEqual(readdirSync(folder), [])
  })
})

function readTlsCert(certFile: string): void {
  readTls({ certFile, keyFile: import.meta.filename }, 0)
}

/** Creates a file that nobody may read, in a folder that everybody may read. */
function forbiddenFile(t: TestContext): string {
  const folder = newFolder(t, { file: '' })
  chmodSync(folder, 0o755)
  const path = join(folder, 'file')
  chmodSync(path, 0)
  return path
}

function newStore(t: TestContext): Store {
  const folder = newFolder(t)
  chmodSync(folder, 0o755)
  const store = openStore(join(folder, 'data'))
  t.after(() => store.close())
  return store
}
