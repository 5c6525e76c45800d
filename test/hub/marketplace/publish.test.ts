import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import AdmZip from 'adm-zip'
import { zipFolder, zipGitCommit } from '../../../hub/archive/make-zip.ts'
import { holdVersion, readListing, yankVersion } from '../../../hub/marketplace/catalogue.ts'
import { type Publication, publishArchive } from '../../../hub/marketplace/publish.ts'
import { openStore, type Store } from '../../../hub/store.ts'
import { newFolder, SIGNING_SECRET } from '../running-hub.ts'

const PUBLICATION = { kind: 'plugin', slug: 'hello', version: '1.0.0', signingSecret: SIGNING_SECRET } as const
const PRIVATE_KEY = '-----BEGIN EC PRIVATE KEY-----\n'
const OLD_BYTES = Buffer.from('old')
const NEW_BYTES = Buffer.from('new')

describe('publishing', () => {
  it('never changes a published version', async t => {
    const store = newStore(t)
    await publishArchive(store, OLD_BYTES, PUBLICATION)
    const before = readListing(store, PUBLICATION)
    await assert.rejects(publishArchive(store, NEW_BYTES, PUBLICATION), { status: 409 })
    await assert.rejects(publishArchive(store, OLD_BYTES, { ...PUBLICATION, signingSecret: 'other' }), { status: 409 })
    assert.deepEqual(readListing(store, PUBLICATION), before)
    assert.equal(storedArtifacts(store).length, 1)
  })

  it('lets only one of two requests that publish a version at the same time succeed', async t => {
    const store = newStore(t)
    const both = [OLD_BYTES, NEW_BYTES].map(bytes => publishArchive(store, bytes, PUBLICATION))
    const ended = await Promise.allSettled(both)
    assert.deepEqual(ended.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  })

  it('changes nothing when a version is published again, and refuses one that was yanked, even to replace it', async t => {
    const store = newStore(t)
    await publishArchive(store, OLD_BYTES, PUBLICATION)
    const before = readListing(store, PUBLICATION)
    await publishArchive(store, OLD_BYTES, PUBLICATION)
    assert.deepEqual(readListing(store, PUBLICATION), before)
    yankVersion(store, PUBLICATION)
    const yanked = readListing(store, PUBLICATION)
    for (const replace of [false, true])
      for (const bytes of [OLD_BYTES, NEW_BYTES])
        await assert.rejects(publishArchive(store, bytes, { ...PUBLICATION, name: 'Other', replace }), {
          status: 409,
          message: /is permanently yanked/,
        })
    assert.deepEqual(readListing(store, PUBLICATION), yanked)
    assert.equal(storedArtifacts(store).length, 1)
  })

  it('refuses a version that is published with or without its leading v, which hosts take for the same', async t => {
    const store = newStore(t)
    for (const [version, other] of [
      ['1.10', 'v1.10'],
      ['v2.0.0', '2.0.0'],
    ] as const) {
      await publishArchive(store, OLD_BYTES, { ...PUBLICATION, version })
      for (const replace of [false, true])
        await assert.rejects(publishArchive(store, OLD_BYTES, { ...PUBLICATION, version: other, replace }), {
          status: 409,
          message: `The plugin hello has a version ${version}, which hosts take for the same version as ${other}: write it as ${version}, or raise the version.`,
        })
    }
    await publishArchive(store, OLD_BYTES, { ...PUBLICATION, slug: 'other', version: 'v1.10' })
    const { versions } = readListing(store, PUBLICATION)
    assert.deepEqual(
      versions.map(({ version }) => version),
      ['v2.0.0', '1.10'],
    )
  })

  it('says whether a published version has different bytes, or only another signing secret', async t => {
    const store = newStore(t)
    await publishArchive(store, OLD_BYTES, PUBLICATION)
    const other = { ...PUBLICATION, signingSecret: 'another secret' }
    await assert.rejects(publishArchive(store, OLD_BYTES, other), {
      status: 409,
      message: /is already published with the same bytes, but signed with another secret: .* add --replace/,
    })
    await assert.rejects(publishArchive(store, NEW_BYTES, PUBLICATION), {
      status: 409,
      message: /is already published with different bytes \(SHA-256 [0-9a-f]{64}\): raise /,
    })
    const signed = await publishArchive(store, OLD_BYTES, { ...other, replace: true })
    assert.deepEqual(readListing(store, PUBLICATION).versions, [signed])
  })

  it('replaces a version on request', async t => {
    const store = newStore(t)
    await publishArchive(store, OLD_BYTES, PUBLICATION)
    const replaced = await publishArchive(store, NEW_BYTES, { ...PUBLICATION, replace: true })
    assert.deepEqual(readListing(store, PUBLICATION).versions, [replaced])
  })

  it('does not serve a version that is yanked while its bytes are replaced', async t => {
    const store = newStore(t)
    await publishArchive(store, OLD_BYTES, PUBLICATION)
    const replacing = publishArchive(store, NEW_BYTES, { ...PUBLICATION, replace: true })
    yankVersion(store, PUBLICATION)
    const yanked = readListing(store, PUBLICATION)
    await assert.rejects(replacing, { status: 409, message: /is permanently yanked/ })
    assert.deepEqual(readListing(store, PUBLICATION), yanked)
  })

  it('still holds back a version that is published again or replaced', async t => {
    const store = newStore(t)
    await publishArchive(store, OLD_BYTES, PUBLICATION)
    holdVersion(store, PUBLICATION)
    const [held] = readListing(store, PUBLICATION).versions
    assert.deepEqual(await publishArchive(store, OLD_BYTES, PUBLICATION), held)
    const replaced = await publishArchive(store, NEW_BYTES, { ...PUBLICATION, replace: true })
    assert.notEqual(replaced.sha256, held?.sha256)
    assert.equal(replaced.held_at, held?.held_at)
    assert.deepEqual(readListing(store, PUBLICATION).versions, [replaced])
  })

  it('keeps the name of an earlier version', async t => {
    const store = newStore(t)
    await publishArchive(store, OLD_BYTES, { ...PUBLICATION, name: 'Hello' })
    await publishArchive(store, NEW_BYTES, { ...PUBLICATION, version: '1.1.0' })
    assert.equal(readListing(store, PUBLICATION).name, 'Hello')
  })

  for (const [field, value] of [
    ['kind', 'theme'],
    ['slug', '../hello'],
    ['slug', 'Hello'],
    ['slug', ''],
    ['version', '../1.0.0'],
    ['version', '1.0.0\r\nX-Evil: 1'],
    ['version', 'latest'],
    ['repo', 'octo/hello'],
    ['repo', 'octo/hello@v1\r\nX-Evil: 1'],
    ['name', 'two\nlines'],
    ['signingSecret', ''],
    ['signingSecret', 'secret\n'],
  ] as const) {
    it(`refuses ${field} ${JSON.stringify(value)}`, async t => {
      const store = newStore(t)
      const publication = { ...PUBLICATION, [field]: value } as Publication
      await assert.rejects(publishArchive(store, OLD_BYTES, publication), (error: Error & { status?: number }) => {
        return error.status === 400 && error.message.startsWith(`${field}: `)
      })
      assert.deepEqual(storedArtifacts(store), [])
    })
  }
})

describe('an archive of a folder', () => {
  it('has the same bytes at any time and place', t => {
    const files = { 'b/c.txt': 'c', 'b.txt': 'b', 'a.txt': 'a', 'ü.txt': 'ü' }
    const [first, second] = [newFolder(t, files), newFolder(t)]
    for (const path of Object.keys(files).reverse()) {
      mkdirSync(join(second, path, '..'), { recursive: true })
      cpSync(join(first, path), join(second, path))
      utimesSync(join(second, path), 1, 1)
    }
    assert.ok(zipFolder(first).bytes.equals(zipFolder(second).bytes))
  })

  it('keeps symlinks, executable files and empty folders', t => {
    const folder = newFolder(t, { 'bin/run': '#!/bin/sh\n', 'plain.txt': 'plain' })
    chmodSync(join(folder, 'bin/run'), 0o4711)
    chmodSync(join(folder, 'plain.txt'), 0o600)
    symlinkSync('bin/run', join(folder, 'link'))
    mkdirSync(join(folder, 'empty'))
    assert.deepEqual(modesOf(zipFolder(folder).bytes), {
      'bin/': '40755',
      'bin/run': '100755',
      'empty/': '40755',
      link: '120777',
      'plain.txt': '100644',
    })
  })

  it('has symlinks that unzip restores', t => {
    const folder = newFolder(t, { 'bin/run': '#!/bin/sh\n' })
    symlinkSync('bin', join(folder, 'link'))
    const place = newFolder(t, {})
    writeFileSync(join(place, 'a.zip'), zipFolder(folder).bytes)
    execFileSync('unzip', ['-q', 'a.zip'], { cwd: place })
    assert.equal(readFileSync(join(place, 'link/run'), 'utf8'), '#!/bin/sh\n')
  })

  it('leaves out and lists version control, dependencies, caches, settings and private keys', t => {
    const folder = newFolder(t, {
      '.git/config': '',
      'node_modules/a/index.js': '',
      'src/__pycache__/main.pyc': '',
      '.env': 'TOKEN=1',
      '.env.production': 'TOKEN=1',
      '.env.template': 'TOKEN=',
      '.venv/bin/activate': '',
      'envs/venv/pyvenv.cfg': '',
      'certs/ca.pem': '-----BEGIN CERTIFICATE-----\n',
      'certs/mine.pem': PRIVATE_KEY,
      'certs/tls.key': '',
      id_ed25519: '',
      'src/main.py': '',
    })
    const { bytes, leftOut } = zipFolder(folder)
    const names = Object.keys(modesOf(bytes)).filter(name => !name.endsWith('/'))
    assert.deepEqual(names.sort(), ['.env.template', 'certs/ca.pem', 'src/main.py'])
    assert.deepEqual(leftOut.sort(), [
      '.env',
      '.env.production',
      '.git',
      '.venv',
      'certs/mine.pem',
      'certs/tls.key',
      'envs/venv',
      'id_ed25519',
      'node_modules',
      'src/__pycache__',
    ])
  })

  for (const [name, target] of [
    ['leads out of the folder', '../outside.txt'],
    ['leads to the folder itself', '.'],
    ['is absolute', '/etc/hostname'],
    ['leads out of the folder and back in by its name', '../folder/sub/a.txt'],
    ['is broken', 'missing.txt'],
    ['leads out through another symlink', 'sub/up/../../outside.txt'],
  ] as const) {
    it(`is refused when a symlink ${name}`, t => {
      const parent = newFolder(t, { 'outside.txt': '', 'folder/sub/a.txt': '' })
      symlinkSync(target, join(parent, 'folder', 'link'))
      assert.throws(() => zipFolder(join(parent, 'folder')), { status: 400 })
    })
  }

  it('is refused when a symlink is absolute, even if it leads inside', t => {
    const folder = newFolder(t, { 'a.txt': '' })
    symlinkSync(join(folder, 'a.txt'), join(folder, 'link'))
    assert.throws(() => zipFolder(folder), { status: 400 })
  })

  it('is refused when it is larger than hosts accept, before the file is read', t => {
    const folder = newFolder(t, { 'a.txt': '' })
    truncateSync(join(folder, 'a.txt'), 3 * 1024 ** 3)
    assert.throws(() => zipFolder(folder), {
      status: 400,
      message:
        /^The folder .* has more than 2147483648 bytes, which .*: name only the folder of the plugin or service, or remove some files\.$/,
    })
  })

  for (const [what, name] of Object.entries({
    'with a backslash': Buffer.from('a\\b'),
    'that is not UTF-8': Buffer.of(0x61, 0xff),
  }))
    it(`is refused when a name ${what} is in the folder`, t => {
      const folder = newFolder(t, { 'run.sh': '' })
      writeFileSync(Buffer.concat([Buffer.from(`${folder}/`), name]), '')
      assert.throws(() => zipFolder(folder), {
        status: 400,
        message:
          /^".*" cannot be published, because its name contains a backslash, U\+FFFD or bytes that are not UTF-8: rename it\.$/,
      })
    })

  it('is refused when a pipe is in the folder', t => {
    const folder = newFolder(t)
    execFileSync('mkfifo', [join(folder, 'pipe')])
    assert.throws(() => zipFolder(folder), { status: 400 })
  })

  it('is refused for an empty or missing folder', t => {
    const folder = newFolder(t, { '.env': 'A=1', file: '' })
    assert.throws(() => zipFolder(join(folder, 'file')), { status: 400 })
    assert.throws(() => zipFolder(join(folder, 'missing')), { status: 400 })
    assert.throws(() => zipFolder(newFolder(t, { '.env': 'A=1' })), { status: 400 })
  })
})

describe('an archive of a git commit', () => {
  it("has the tag's files below one directory, with symlinks and executable files", async t => {
    const bytes = await zipGitCommit({ repository: newRepository(t), ref: 'v1.0.0' })
    assert.deepEqual(modesOf(bytes), {
      'hello-v1.0.0/': '0',
      'hello-v1.0.0/link': '120777',
      'hello-v1.0.0/plugin.yaml': '0',
      'hello-v1.0.0/run.sh': '100755',
    })
  })

  it('accepts a given name, and a branch whose name has a slash', async t => {
    const repository = newRepository(t)
    git(repository, 'branch', 'feature/x')
    const bytes = await zipGitCommit({ repository, ref: 'feature/x', name: 'other' })
    assert.ok('other-feature-x/plugin.yaml' in modesOf(bytes))
  })

  it('ignores the settings of a calling git', async t => {
    const repository = newRepository(t)
    process.env['GIT_DIR'] = join(newFolder(t), 'other.git')
    t.after(() => delete process.env['GIT_DIR'])
    assert.ok('hello-v1.0.0/plugin.yaml' in modesOf(await zipGitCommit({ repository, ref: 'v1.0.0' })))
  })

  it('has the same bytes every time', async t => {
    const source = { repository: newRepository(t), ref: 'v1.0.0' }
    assert.ok((await zipGitCommit(source)).equals(await zipGitCommit(source)))
  })

  for (const ref of ['missing', '--output=/tmp/hub-test-injected', '-h', '']) {
    it(`is refused for the ref ${JSON.stringify(ref)}`, async t => {
      await assert.rejects(zipGitCommit({ repository: newRepository(t), ref }), { status: 400 })
    })
  }

  it('is refused for a folder that is not a repository', async t => {
    await assert.rejects(zipGitCommit({ repository: newFolder(t), ref: 'main' }), { status: 400 })
  })
})

function newStore(t: TestContext): Store {
  const store = openStore(newFolder(t))
  t.after(() => store.close())
  return store
}

function storedArtifacts(store: Store): string[] {
  return readdirSync(join(store.dataDir, 'artifacts'))
}

function modesOf(zip: Buffer): Record<string, string> {
  const entries = new AdmZip(zip).getEntries()
  return Object.fromEntries(entries.map(({ entryName, attr }) => [entryName, (attr >>> 16).toString(8)]))
}

function newRepository(t: TestContext): string {
  const repository = join(newFolder(t, { 'plugin.yaml': 'name: hello\n', 'run.sh': '#!/bin/sh\n' }), 'hello.git')
  const source = join(repository, '..')
  mkdirSync(repository)
  for (const name of ['plugin.yaml', 'run.sh']) renameSync(join(source, name), join(repository, name))
  chmodSync(join(repository, 'run.sh'), 0o755)
  symlinkSync('plugin.yaml', join(repository, 'link'))
  git(repository, 'init', '--quiet')
  git(repository, 'add', '.')
  git(repository, 'commit', '--quiet', '--message', 'first')
  git(repository, 'tag', 'v1.0.0')
  return repository
}

function git(repository: string, ...args: string[]): void {
  const identity = ['-c', 'user.name=test', '-c', 'user.email=test@localhost', '-c', 'commit.gpgsign=false']
  execFileSync('git', ['-C', repository, ...identity, ...args])
}
