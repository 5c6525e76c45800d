import assert from 'node:assert/strict'
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { describe, it, type TestContext } from 'node:test'
import { extract, pack } from 'tar-stream'
import { backUp, placeNew } from '../../../hub/backup/backup.ts'
import { restoreBackup } from '../../../hub/backup/restore.ts'
import { readListing } from '../../../hub/marketplace/catalogue.ts'
import { signArchive } from '../../../hub/marketplace/publish.ts'
import { startHub } from '../../../hub/server.ts'
import { openStore } from '../../../hub/store.ts'
import { byExtent, HANG_LIMIT_MS, whyLeftToCi } from '../../extent.ts'
import { publishShop } from '../project/project-source.ts'
import { CLI, hub as command, hubProcess } from '../run-cli.ts'
import { type HubUnderTest, newFolder, runHub, SIGNING_SECRET } from '../running-hub.ts'
import { NOW, report } from '../stored-reports.ts'

const VERSIONS = byExtent({ sample: 12, ci: 60 })

const ONLY_IN_CI = whyLeftToCi()

describe('a backup', { timeout: HANG_LIMIT_MS }, () => {
  it('gives, once restored, every answer that its hub gave', async t => {
    const hub = await runHub(t, { now: () => NOW })
    const key = hub.newKey({ owner: 'alice' })
    for (const version of ['1.0.0', '1.1.0']) await hub.publish({ version }, { 'plugin.yaml': `version: ${version}\n` })
    for (const host_id of ['a', 'b']) report(hub.store, { host_id })
    await publishShop(t, hub.store, '1.0.0')
    const restored = await restoredFrom(t, await backupOf(t, hub))
    const paths = ['/', '/?q=a', '/plugins/hello', '/plugins/hello/install', '/plugins/hello/install?version=1.0.0']
    for (const path of [...paths, '/deployments/plugin/hello/hosts', '/plugins/missing'])
      assert.deepEqual(await answerOf(restored.url, path, key), await answerOf(hub.url, path, key), path)
    assert.deepEqual(readFileSync(join(restored.dataDir, 'dek.key')), readFileSync(join(hub.dataDir, 'dek.key')))
    assert.deepEqual(filesIn(restored.dataDir), filesIn(hub.dataDir))
  })

  it('is complete even while versions are published and hosts report', { skip: ONLY_IN_CI }, async t => {
    const hub = await runHub(t)
    const key = hub.newKey({ owner: 'alice' })
    const accepted: number[] = []
    let isBackedUp = false
    const load = async () => {
      for (let n = 0; n < VERSIONS || !isBackedUp; n++) {
        await hub.publish({ version: `1.${n}.0` }, { 'plugin.yaml': `version: 1.${n}.0\n`, data: 'x'.repeat(n * 1000) })
        report(hub.store, { host_id: `host-${n}` })
        accepted.push(n)
      }
    }
    const backups = async () => {
      const files: { file: string; accepted: number }[] = []
      for (let n = 0; n < 3; n++) files.push({ accepted: accepted.length, file: await backupOf(t, hub, hubProcess) })
      isBackedUp = true
      return files
    }
    const [, files] = await Promise.all([load(), backups()])
    for (const { file, accepted } of files) {
      const restored = await restoredFrom(t, file)
      const store = openStore(restored.dataDir)
      const versions = accepted === 0 ? [] : readListing(store, { kind: 'plugin', slug: 'hello' }).versions
      const reports = Number(store.db.prepare('SELECT count(*) AS found FROM reports').get()?.['found'])
      store.close()
      assert.ok(reports >= accepted && versions.length >= accepted, `${reports}, ${versions.length}, ${accepted}`)
      for (const { version } of versions) {
        const { status, signature, body } = await answerOf(
          restored.url,
          `/plugins/hello/install?version=${version}`,
          key,
        )
        assert.deepEqual([status, signature], [200, signArchive(body, SIGNING_SECRET)])
      }
    }
  })

  it('can be read only by its owner, and so can the restored hub', async t => {
    const hub = await runHub(t)
    await publishShop(t, hub.store, '1.0.0')
    const file = await backupOf(t, hub)
    const { dataDir } = await restoredFrom(t, file)
    assert.equal(statSync(file).mode & 0o777, 0o600)
    for (const path of ['', 'artifacts']) assert.equal(statSync(join(dataDir, path)).mode & 0o777, 0o700, path)
    for (const path of filesIn(dataDir)) assert.equal(statSync(join(dataDir, path)).mode & 0o077, 0, path)
  })

  it('says how many artifacts it contains', async t => {
    const hub = await runHub(t)
    await publishShop(t, hub.store, '1.0.0')
    const file = join(newFolder(t), 'backup.tar')
    const written = await command('backup', '--to', file, '--data', hub.dataDir)
    assert.match(written.stdout, /: 1 artifact, \d+ bytes\.$/m)
    await publishShop(t, hub.store, '2.0.0')
    const another = await command('backup', '--to', `${file}.2`, '--data', hub.dataDir)
    assert.match(another.stdout, /: 2 artifacts, \d+ bytes\.$/m)
  })

  it('replaces no file, and leaves none behind when an artifact is damaged', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const folder = newFolder(t, { 'there.tar': 'mine' })
    const there = await command('backup', '--to', join(folder, 'there.tar'), '--data', hub.dataDir)
    assert.deepEqual([there.code, readFileSync(join(folder, 'there.tar'), 'utf8')], [1, 'mine'])
    assert.match(there.stderr, /there\.tar already exists/)
    const [artifact = ''] = readdirSync(join(hub.dataDir, 'artifacts'))
    const path = join(hub.dataDir, 'artifacts', artifact)
    const bytes = readFileSync(path)
    for (const damage of [
      () =>
        writeFileSync(
          path,
          bytes.map((byte, at) => (at === 9 ? byte ^ 1 : byte)),
        ),
      () => writeFileSync(path, bytes.subarray(1)),
      () => rmSync(path),
    ]) {
      damage()
      const { code, stderr } = await command('backup', '--to', join(folder, 'new.tar'), '--data', hub.dataDir)
      assert.deepEqual([code, readdirSync(folder)], [1, ['there.tar']])
      assert.match(stderr, new RegExp(`artifact ${artifact} is missing or damaged`))
    }
  })

  for (const [name, harm] of [
    ['missing', path => rmSync(path)],
    ['a folder', replaceByFolder],
    ['too short', path => writeFileSync(path, 'x')],
  ] as readonly [string, (path: string) => void][])
    it(`is refused if the key of sealed projects is ${name}`, async t => {
      const hub = await runHub(t)
      await publishShop(t, hub.store, '1.0.0')
      harm(join(hub.dataDir, 'dek.key'))
      const folder = newFolder(t)
      const { code, stderr } = await command('backup', '--to', join(folder, 'a.tar'), '--data', hub.dataDir)
      assert.deepEqual([code, readdirSync(folder)], [1, []])
      assert.match(stderr, /^The key of all sealed projects is missing, unreadable or damaged \(.*dek\.key/)
    })

  it('names the system error if it cannot be written or restored, and leaves no files', {
    skip: ONLY_IN_CI,
  }, async t => {
    const hub = await runHub(t)
    await hub.publish({}, { 'plugin.yaml': 'version: 1.0.0\n', data: randomBytes(3_000_000).toString('base64') })
    const [folder, file] = [newFolder(t), await backupOf(t, hub)]
    const backup = ['backup', '--to', join(folder, 'a.tar'), '--data', hub.dataDir]
    for (const args of [backup, ['restore', '--from', file, '--data', join(folder, 'data')]]) {
      const { status, stderr } = withSmallFiles(args)
      assert.deepEqual([status, readdirSync(folder)], [1, []], stderr)
      assert.match(stderr, /EFBIG\): free some space/)
    }
  })

  it('blames a damaged database, not the file that it writes', async t => {
    const hub = await runHub(t)
    hub.store.db.exec('PRAGMA synchronous = OFF')
    for (let n = 0; n < 100; n++) report(hub.store, { host_id: `host-${n}`, error_message: 'x'.repeat(1000) })
    hub.store.db.exec('PRAGMA wal_checkpoint(TRUNCATE)')
    const database = join(hub.dataDir, 'hub.sqlite')
    const bytes = readFileSync(database)
    const page = Math.floor(bytes.indexOf('x'.repeat(1000)) / 4096) * 4096
    writeFileSync(database, bytes.fill(0xff, page, page + 4096))
    const folder = newFolder(t)
    const { code, stderr } = await hubProcess('backup', '--to', join(folder, 'a.tar'), '--data', hub.dataDir)
    assert.deepEqual([code, readdirSync(folder)], [1, []])
    assert.match(
      stderr,
      /^The hub's database .*hub\.sqlite is damaged \(.+\), and no backup was written: restore the last/,
    )
  })

  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    it(`leaves no files when ${signal} interrupts it`, async t => {
      const hub = await runHub(t)
      await hub.publish()
      const [artifact = ''] = readdirSync(join(hub.dataDir, 'artifacts'))
      const pipe = join(hub.dataDir, 'artifacts', artifact)
      rmSync(pipe)
      execFileSync('mkfifo', [pipe])
      hub.store.db.exec('UPDATE versions SET size = 0')
      const folder = newFolder(t)
      const args = [CLI, 'backup', '--to', join(folder, 'a.tar'), '--data', hub.dataDir]
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'] })
      const exited = once(child, 'exit')
      // Opens once the backup reads the pipe, and keeps the backup from ending.
      const writer = await open(pipe, 'w')
      child.kill(signal)
      const [printed] = await Promise.race([once(child.stderr, 'data'), exited])
      assert.match(String(printed), /^Interrupted: no backup was written\.$/m)
      await writer.close()
      assert.deepEqual([(await exited)[0], readdirSync(folder)], [1, []])
    })

  it('is copied if the file system has no hard links, and still replaces no file', async t => {
    const folder = newFolder(t, { 'backup.tar': 'bytes' })
    const noLinks = () => Promise.reject(Object.assign(new Error('no links'), { code: 'EPERM' }))
    const [written, target] = [join(folder, 'backup.tar'), join(folder, 'new.tar')]
    chmodSync(written, 0o600)
    await placeNew(written, target, noLinks)
    assert.deepEqual([readFileSync(target, 'utf8'), statSync(target).mode & 0o777], ['bytes', 0o600])
    await assert.rejects(placeNew(written, target, noLinks), { code: 'EEXIST' })
  })

  for (const [name, args, message] of [
    ['a data folder without a hub', ['--data', '/missing'], /^The data folder \/missing contains no hub/],
    [
      'a target in a missing folder',
      ['--to', '/missing/a.tar'],
      /^The backup \/missing\/a\.tar cannot be written \(.*ENOENT\)/,
    ],
  ] as const)
    it(`is refused with ${name}`, async t => {
      const hub = await runHub(t)
      const options = ['--to', join(newFolder(t), 'a.tar'), '--data', hub.dataDir, ...args]
      const { code, stderr } = await command('backup', ...options)
      assert.equal(code, 1)
      assert.match(stderr, message)
    })
})

describe('restoring', () => {
  for (const [name, fill] of [
    ['a file in it', folder => writeFileSync(join(folder, 'notes'), '')],
    ['a hub in it', folder => openStore(folder).close()],
  ] as readonly [string, (folder: string) => void][])
    it(`refuses a folder with ${name}, and changes nothing`, async t => {
      const hub = await runHub(t)
      const file = await backupOf(t, hub)
      const target = newFolder(t)
      fill(target)
      const before = filesIn(target)
      const { code, stderr } = await command('restore', '--from', file, '--data', target)
      assert.equal(code, 1)
      assert.match(stderr, /is not empty, and a restore replaces no files/)
      assert.deepEqual(filesIn(target), before)
    })

  it('fills an empty folder, even behind a symlink, without replacing it', async t => {
    const hub = await runHub(t)
    await publishShop(t, hub.store, '1.0.0')
    const [file, folder] = [await backupOf(t, hub), newFolder(t)]
    const before = statSync(folder).ino
    const link = join(newFolder(t), 'data')
    symlinkSync(folder, link)
    const { code, stdout, stderr } = await command('restore', '--from', file, '--data', link)
    assert.equal(code, 0, stderr)
    assert.match(stdout, /This is the hub as it was at \d{4}-\d\d-\d\dT[\d:]{8}Z: repeat every revocation/)
    assert.deepEqual([filesIn(folder), statSync(folder).ino], [filesIn(hub.dataDir), before])
    assert.ok(!readdirSync(folder).some(name => name.includes('restoring')))
  })

  it('leaves no files when it is interrupted', async t => {
    const file = await backupOf(t, await runHub(t))
    const folder = newFolder(t)
    await assert.rejects(restoreBackup(file, join(folder, 'data'), AbortSignal.abort()), { name: 'AbortError' })
    assert.deepEqual(readdirSync(folder), [])
  })

  it('names the files of a restore that was killed', async t => {
    const file = await backupOf(t, await runHub(t))
    const folder = newFolder(t, { '.0.restoring/dek.key': '' })
    const { code, stderr } = await command('restore', '--from', file, '--data', folder)
    assert.equal(code, 1)
    assert.match(stderr, /which may include keys: remove \.0\.restoring from it/)
  })

  it('leaves an empty folder empty when the backup is damaged', async t => {
    const [folder, file] = [newFolder(t), join(newFolder(t), 'a.tar')]
    writeFileSync(file, 'any text '.repeat(1000))
    const { code } = await command('restore', '--from', file, '--data', folder)
    assert.deepEqual([code, readdirSync(folder)], [1, []])
  })

  it('refuses a backup of sealed projects without their key', async t => {
    const hub = await runHub(t)
    await publishShop(t, hub.store, '1.0.0')
    await refuses(t, await without('dek.key', await backupOf(t, hub)), /lacks dek\.key, the key of its sealed projects/)
  })

  for (const [name, change, message] of [
    ['that was cut in the middle', bytes => bytes.subarray(0, bytes.length / 2), /is not a complete tar/],
    [
      'without its last artifact',
      bytes => bytes.subarray(0, bytes.indexOf('artifacts/')),
      /does not end with SHA256SUMS/,
    ],
    ['that is empty', () => Buffer.alloc(0), /does not end with SHA256SUMS/],
    ['that is not a tar', () => Buffer.from('any text '.repeat(1000)), /is not a complete tar/],
    ['with a changed artifact', bytes => flipAfter(bytes, 'plugin.yaml'), /its files do not match its SHA256SUMS/],
    ['with a changed database', bytes => flipAfter(bytes, 'SQLite format'), /its files do not match its SHA256SUMS/],
  ] as readonly [string, (bytes: Buffer) => Uint8Array, RegExp][])
    it(`refuses a backup ${name}, and leaves no files`, async t => {
      const hub = await runHub(t)
      await hub.publish()
      const file = await backupOf(t, hub)
      writeFileSync(file, change(readFileSync(file)))
      await refuses(t, file, message)
    })

  for (const [name, entry, type] of [
    ['a path that leads out', { name: '../hub.sqlite' }, 'file'],
    ['an absolute path', { name: '/etc/cron.d/x' }, 'file'],
    ['an unknown file', { name: 'artifacts/x' }, 'file'],
    ['a name that only resembles an expected one', { name: 'hub-sqlite' }, 'file'],
    ['a symlink', { name: 'dek.key', type: 'symlink', linkname: '/etc/passwd' }, 'symlink'],
    ['a folder in place of a file', { name: 'hub.sqlite', type: 'directory' }, 'directory'],
  ] as const)
    it(`refuses a backup with ${name}`, async t => {
      const file = join(newFolder(t), 'a.tar')
      const tar = pack()
      tar.entry(entry, '')
      tar.finalize()
      writeFileSync(file, await buffer(tar))
      await refuses(t, file, new RegExp(`contains the ${type} "${entry.name}", which does not belong in a backup`))
    })

  it('refuses a backup of a newer hub, and names the backup', async t => {
    const hub = await runHub(t)
    const file = join(newFolder(t), 'backup.tar')
    hub.store.db.exec('PRAGMA user_version = 99')
    await backUp(hub.store, file, new AbortController().signal)
    await refuses(
      t,
      file,
      /^A newer hub wrote the backup \S+backup\.tar, and nothing was restored: update this hub\.$/m,
    )
  })

  it('refuses a backup that contains a file twice', async t => {
    const file = join(newFolder(t), 'a.tar')
    const tar = pack()
    for (let count = 0; count < 2; count++) tar.entry({ name: 'dek.key' }, '')
    tar.finalize()
    writeFileSync(file, await buffer(tar))
    await refuses(t, file, /contains the file "dek\.key" twice/)
  })

  it('names a file that does not exist', async t => {
    await refuses(t, '/missing.tar', /^The backup \/missing\.tar does not exist: name an existing one with --from\.$/m)
  })

  it('names a folder in place of a file', async t => {
    await refuses(t, '/tmp', /^The backup \/tmp is not a regular file: name one that "backup" wrote\.$/m)
  })
})

async function backupOf(t: TestContext, { dataDir }: HubUnderTest, run = command): Promise<string> {
  const file = join(newFolder(t), 'backup.tar')
  const { code, stderr } = await run('backup', '--to', file, '--data', dataDir)
  assert.equal(code, 0, stderr)
  return file
}

function replaceByFolder(path: string): void {
  rmSync(path)
  mkdirSync(path)
}

/** Runs the command with a limit of 1 MiB for each file, as if the disk were full. */
function withSmallFiles(args: readonly string[]) {
  const limited = ['-c', 'ulimit -f 2048; exec "$@"', 'sh', process.execPath, CLI, ...args]
  return spawnSync('sh', limited, { encoding: 'utf8' })
}

/** Removes a file from a backup, and its line from SHA256SUMS, as if the hub had never had that file. */
async function without(name: string, file: string): Promise<string> {
  const [tar, less] = [extract(), pack()]
  tar.end(readFileSync(file))
  for await (const entry of tar) {
    const bytes = await buffer(entry)
    const lines = bytes.toString('latin1').replace(new RegExp(`.*${name}\n`), '')
    if (entry.header.name === 'SHA256SUMS') less.entry({ name: 'SHA256SUMS' }, Buffer.from(lines, 'latin1'))
    else if (entry.header.name !== name) less.entry({ name: entry.header.name }, bytes)
  }
  less.finalize()
  writeFileSync(file, await buffer(less))
  return file
}

async function restoredFrom(t: TestContext, file: string) {
  const dataDir = join(newFolder(t), 'new', 'data')
  const { code, stderr } = await command('restore', '--from', file, '--data', dataDir)
  assert.equal(code, 0, stderr)
  const hub = await startHub({ dataDir, now: () => NOW })
  t.after(() => hub.close())
  return { ...hub, dataDir }
}

async function refuses(t: TestContext, file: string, message: RegExp): Promise<void> {
  const folder = newFolder(t)
  const { code, stderr } = await command('restore', '--from', file, '--data', join(folder, 'data'))
  assert.deepEqual([code, readdirSync(folder)], [1, []])
  assert.match(stderr, message)
  assert.equal(stderr.trim().split('\n').length, 1)
}

async function answerOf(url: string, path: string, key: string) {
  const response = await fetch(url + path, { headers: { 'X-API-Key': key } })
  const body = Buffer.from(await response.arrayBuffer())
  return { status: response.status, signature: response.headers.get('x-signature'), body }
}

/** Lists all files except for those that SQLite keeps next to an open database. */
function filesIn(folder: string): string[] {
  const all = readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()
  return all.filter(path => !/-(wal|shm)$/.test(path) && statSync(join(folder, path)).isFile())
}

/** Damages a byte shortly after the last occurrence of a text in the content, and changes no header. */
function flipAfter(bytes: Buffer, text: string): Buffer {
  const changed = Buffer.from(bytes)
  const at = bytes.lastIndexOf(text) + 24
  changed[at] = (changed[at] ?? 0) ^ 0xff
  return changed
}
