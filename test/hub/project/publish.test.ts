import assert from 'node:assert/strict'
import { createCipheriv, createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { zstdCompressSync } from 'node:zlib'
import { PIECE_BYTES } from '../../../hub/artifacts.ts'
import { listProjects, revokeProjectVersion } from '../../../hub/project/catalogue.ts'
import { decryptDek, decryptPieces, encryptDek } from '../../../hub/project/encrypt.ts'
import { publishProject, type Release, type SealedRelease } from '../../../hub/project/publish.ts'
import { type SealedProject, signerPublicKey } from '../../../hub/project/seal.ts'
import { openStore, type Store } from '../../../hub/store.ts'
import { buildTar, directory, file, gnuLong, pax, symlink, type TarItem } from '../../archives/tar-builder.ts'
import { errorOf, newFolder, runHub } from '../running-hub.ts'
import { sendForm } from './project-client.ts'
import { PLAN_HEAD, publishShop, SIGNING_KEY, sealShop } from './project-source.ts'

describe('publishing a project', () => {
  it('lists the version', async t => {
    const store = newStore(t)
    await publishShop(t, store, '1.0.0')
    await publishShop(t, store, '1.1.0')
    assert.deepEqual(
      listProjects(store).map(({ project_id, versions }) => [project_id, versions.map(({ version }) => version)]),
      [['shop', ['1.1.0', '1.0.0']]],
    )
  })

  it('lets the hub answer other requests between the pieces of a large file', async t => {
    const store = newStore(t)
    const bytes = randomBytes(8 * PIECE_BYTES).toString('latin1')
    const { bytes: sealed, release } = await sealShop(t, {}, { 'plugins/cart/data': bytes })
    let turns = 0
    const count = () => {
      turns++
      counting = setImmediate(count)
    }
    let counting = setImmediate(count)
    const seen: number[] = []
    for await (const _ of decryptPieces({ bytes: sealed, dek: Buffer.from(release.dek, 'base64') })) seen.push(turns)
    await publishProject(store, { bytes: sealed, release }, async () => void seen.push(turns))
    clearImmediate(counting)
    const [beforePublishing = 0, whenInspected = 0] = seen.slice(-2)
    assert.ok(beforePublishing >= 8, `${beforePublishing} turns`)
    assert.ok(whenInspected - beforePublishing >= 16, `${whenInspected - beforePublishing} turns`)
  })

  it('changes nothing when a version is published again, revoked or not', async t => {
    const store = newStore(t)
    const sealed = await publishShop(t, store, '1.0.0')
    revokeProjectVersion(store, { project_id: 'shop', version: '1.0.0' })
    const before = listProjects(store)
    await publishProject(store, sealed)
    assert.deepEqual(listProjects(store), before)
  })

  it('never changes a published version', async t => {
    const store = newStore(t)
    await publishShop(t, store, '1.0.0')
    await assert.rejects(publishShop(t, store, '1.0.0'), { status: 409 })
    assert.equal(listProjects(store)[0]?.versions.length, 1)
  })

  it('says whether a published version has different bytes, or only another signature', async t => {
    const store = newStore(t)
    const { bytes, release } = await publishShop(t, store, '1.0.0')
    const { privateKey } = generateKeyPairSync('ed25519')
    const signature = sign(null, bytes, privateKey).toString('base64')
    const other = { ...release, signature, signer_public_key: signerPublicKey(privateKey) }
    const before = 'Version 1.0.0 of the project shop is already published with'
    await assert.rejects(publishProject(store, { bytes, release: other }), {
      status: 409,
      message: `${before} the same bytes, but another signature: publish a new version.`,
    })
    await assert.rejects(publishShop(t, store, '1.0.0'), ({ message }: Error) =>
      message.startsWith(`${before} different bytes (SHA-256 `),
    )
    assert.equal(listProjects(store)[0]?.versions[0]?.signature, release.signature)
  })

  it('never publishes the same bytes as a second version', async t => {
    const store = newStore(t)
    const { bytes, release } = await publishShop(t, store, '1.0.0')
    await assert.rejects(publishProject(store, { bytes, release: { ...release, version: '2.0.0' } }), { status: 409 })
  })

  it('lets only one of two requests that publish a version at the same time succeed', async t => {
    const store = newStore(t)
    const both = [await sealShop(t), await sealShop(t)]
    const ended = await Promise.allSettled(both.map(sealed => publishProject(store, sealed)))
    assert.deepEqual(ended.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  })

  for (const [name, change] of [
    ['a changed byte', ({ bytes }: SealedProject) => ({ bytes: flipped(bytes, 20) })],
    ['a changed nonce', ({ bytes }: SealedProject) => ({ bytes: flipped(bytes, 0) })],
    ['an extra byte', ({ bytes }: SealedProject) => ({ bytes: Buffer.concat([bytes, Buffer.alloc(1)]) })],
    ['an empty file', () => ({ bytes: Buffer.alloc(0) })],
    [
      'a signature over other bytes',
      () => ({ signature: sign(null, Buffer.from('x'), SIGNING_KEY).toString('base64') }),
    ],
    ['another public key', () => ({ signer_public_key: randomBytes(32).toString('base64') })],
    ['a signature of 63 bytes', () => ({ signature: randomBytes(63).toString('base64') })],
    ['a signature in hex', () => ({ signature: randomBytes(64).toString('hex') })],
    ['a key that does not open the file', () => ({ dek: randomBytes(32).toString('base64') })],
    ['a key of 16 bytes', () => ({ dek: randomBytes(16).toString('base64') })],
    ['base64 with a stray character', ({ release }: SealedProject) => ({ dek: `${release.dek}\n` })],
    ['a version that is not semantic', () => ({ version: '1' })],
    ['"latest" as a version', () => ({ version: 'latest' })],
    ['a project id that is a path', () => ({ project_id: '..' })],
  ] as const) {
    it(`refuses ${name}`, async t => {
      const store = newStore(t)
      const sealed = await sealShop(t)
      const { bytes = sealed.bytes, ...fields }: Partial<Release> & { bytes?: Buffer } = change(sealed)
      await assert.rejects(publishProject(store, { bytes, release: { ...sealed.release, ...fields } }), { status: 400 })
      assert.deepEqual(listProjects(store), [])
      assert.deepEqual(readdirSync(join(store.dataDir, 'artifacts')), [])
    })
  }

  it('refuses signed bytes that are too short to be sealed', async t => {
    const bytes = Buffer.alloc(20)
    const { release } = await sealShop(t)
    const signature = sign(null, bytes, SIGNING_KEY).toString('base64')
    await assert.rejects(publishProject(newStore(t), { bytes, release: { ...release, signature } }), { status: 400 })
  })
})

describe('a key at rest', () => {
  it('is in no file of the data folder and in no log, in any form', async t => {
    const hub = await runHub(t)
    const sealed = await sealShop(t)
    assert.equal((await sendForm(hub, sealed)).status, 201)
    const dek = Buffer.from(sealed.release.dek, 'base64')
    for (const bytes of [hub.log.join('\n'), ...allFiles(hub.dataDir)].map(content => Buffer.from(content))) {
      for (const form of [dek, sealed.release.dek, dek.toString('base64url'), dek.toString('hex')]) {
        assert.equal(bytes.includes(form), false)
      }
    }
  })

  it("is encrypted under a key that only the hub's user can read", async t => {
    const store = newStore(t)
    await publishShop(t, store, '1.0.0')
    assert.equal(statSync(join(store.dataDir, 'dek.key')).mode & 0o777, 0o600)
    assert.equal(statSync(join(store.dataDir, 'dek.key')).size, 32)
  })

  it('can be decrypted only for its own release', t => {
    const store = newStore(t)
    const owner = { project_id: 'shop', version: '1.0.0', signature: 's' }
    const dek = randomBytes(32)
    const encrypted = encryptDek(store, owner, dek)
    assert.deepEqual(decryptDek(store, owner, encrypted), dek)
    for (const other of [{ project_id: 'x' }, { version: '2.0.0' }, { signature: 'x' }]) {
      assert.throws(() => decryptDek(store, { ...owner, ...other }, encrypted), { status: 500 })
    }
    assert.throws(() => decryptDek(store, owner, encrypted.subarray(0, -1)), { status: 500 })
  })

  it('is not released with a wrong or missing key of the hub', t => {
    const store = newStore(t)
    const owner = { project_id: 'shop', version: '1.0.0', signature: 's' }
    const encrypted = encryptDek(store, owner, randomBytes(32))
    writeFileSync(join(store.dataDir, 'dek.key'), randomBytes(32))
    assert.throws(() => decryptDek(store, owner, encrypted), { status: 500 })
    rmSync(join(store.dataDir, 'dek.key'))
    assert.throws(() => decryptDek(store, owner, encrypted), { status: 500 })
  })
})

function newStore(t: TestContext): Store {
  const store = openStore(join(newFolder(t), 'data'))
  t.after(() => store.close())
  return store
}

function flipped(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes)
  copy[at] = (copy[at] ?? 0) ^ 1
  return copy
}

function allFiles(folder: string): Buffer[] {
  const found = readdirSync(folder, { recursive: true, encoding: 'utf8' }).map(path => join(folder, path))
  return found.filter(path => statSync(path).isFile()).map(path => readFileSync(path))
}

const INSTALLING = `${PLAN_HEAD}steps: [{id: cart, action: install_plugin, plugin: cart}]\n`
const CONTENT = { 'deployment/install.yaml': INSTALLING, 'plugins/cart/plugin.yaml': 'version: 1.0.0' }
const MANIFEST = {
  format_version: '1',
  project_id: 'shop',
  project_name: 'Shop',
  version: '1.0.0',
  built_at: '2026-01-02T03:04:05Z',
  plugins: [{ id: 'cart', version: '1.0.0', sha256: 'ab'.repeat(32) }],
  content_sha256: digestOf(CONTENT),
}
const PARTS = Object.entries(CONTENT).map(([name, text]) => file(name, text))
const [PLAN] = PARTS as [TarItem]
const manifest = (change: Record<string, unknown> = {}) =>
  file('manifest.json', JSON.stringify({ ...MANIFEST, ...change }))
const whole = (...items: TarItem[]) => buildTar([manifest(), ...PARTS, ...items])
/** A tar whose manifest has the digest of its content, the usual one and this. */
const digested = (more: Record<string, string | Buffer>, ...items: TarItem[]) =>
  buildTar([manifest({ content_sha256: digestOf({ ...CONTENT, ...more }) }), ...PARTS, ...items])
const planned = (steps: string) => {
  const plan = `${PLAN_HEAD}steps: [${steps}]\n`
  const content_sha256 = digestOf({ ...CONTENT, 'deployment/install.yaml': plan })
  return buildTar([manifest({ content_sha256 }), file('deployment/install.yaml', plan), ...PARTS.slice(1)])
}

/** The tree digest of these files (docs/files.md). */
function digestOf(files: Record<string, string | Buffer>): string {
  const sha256 = (data: string | Buffer) => createHash('sha256').update(data).digest('hex')
  const paths = Object.keys(files).sort()
  return sha256(paths.map(path => `${path}:${sha256(files[path] ?? '')}`).join('\n'))
}

/** 1,024 bytes of a file's content that look like the header of a PAX entry of 1 GiB, then an empty block. */
const HEADER_LIKE = Buffer.from(buildTar([file('a', '', { type: 'x', size: 2 ** 30 })]).subarray(0, 1024))

describe('publishing a project that was sealed elsewhere', () => {
  for (const [name, tar, message] of [
    ['another project', buildTar([manifest({ project_id: 'blog' }), ...PARTS]), /of project "blog", not shop/],
    ['another version', buildTar([manifest({ version: '1.0.1' }), ...PARTS]), /of version "1\.0\.1", not 1\.0\.0/],
    ['a missing manifest', buildTar(PARTS), /has no manifest\.json at its root/],
    [
      'a manifest that is not JSON',
      buildTar([file('manifest.json', '{'), ...PARTS]),
      /hosts cannot read \(not a JSON object\)/,
    ],
    ['an empty list of plugins', buildTar([manifest({ plugins: [] }), ...PARTS]), /hosts cannot read \(plugins\)/],
    ['a large manifest', buildTar([file('manifest.json', ' '.repeat(2 ** 20 + 1))]), /of more than 1048576 bytes/],
    [
      'another digest of its content',
      buildTar([manifest({ content_sha256: 'ab'.repeat(32) }), ...PARTS]),
      /has files with the digest [0-9a-f]{64}, but a manifest\.json with abab/,
    ],
    ['a manifest without the time', buildTar([manifest({ built_at: 'today' }), ...PARTS]), /cannot read \(built_at\)/],
    [
      'a plugin without a folder',
      buildTar([manifest({ plugins: [...MANIFEST.plugins, { ...MANIFEST.plugins[0], id: 'till' }] }), ...PARTS]),
      /has no plugins\/till, which its manifest\.json lists/,
    ],
    [
      'a source at a branch',
      buildTar([
        manifest({ plugins: [{ id: 'cart', version: '1.0.0', source: { url: 'https://h/x', ref: 'main' } }] }),
        ...PARTS,
      ]),
      /The source of plugins\/cart in manifest\.json: ref must be a full commit id/,
    ],
    [
      'a plugin.yaml whose version is a date',
      (() => {
        const text = 'version: 2026-01-02'
        const content_sha256 = digestOf({ ...CONTENT, 'plugins/cart/plugin.yaml': text })
        return buildTar([manifest({ content_sha256 }), PLAN, file('plugins/cart/plugin.yaml', text)])
      })(),
      /^plugins\/cart\/plugin\.yaml: The version in plugin\.yaml is not text for all YAML parsers: quote it\.$/,
    ],
    ['a plan that runs a command', planned('{id: a, action: run}'), /step a: action must be one of/],
    ['a plan that installs nothing', planned('{id: a, action: prepare}'), /no step installs anything/],
    [
      'a plan that installs a missing part',
      planned('{id: a, action: install_plugin, plugin: till}'),
      /plugins\/till, which/,
    ],
    ['a missing plan', buildTar([manifest(), file('plugins/cart/plugin.yaml')]), /has no deployment\/install\.yaml/],
    ['a long plan', buildTar([manifest(), file('deployment/install.yaml', '#'.repeat(70_000))]), /shorten it to 65536/],
    ['a path that leads out', whole(file('../x')), /"\.\.\/x" has an empty part/],
    ['a symlink that leads out', whole(symlink('plugins/l', '../../x')), /leads out of the archive/],
    [
      'a symlink to a very long path',
      whole(pax({ linkpath: 'x/'.repeat(30_000) }), symlink('l', 'x')),
      /"l" is a symlink to a path of more than 4095 bytes\./,
    ],
    [
      'long names in most of its entries',
      whole(...Array.from({ length: 420 }, (_, n) => [gnuLong('L', `${n}/${'n'.repeat(64_000)}`), file('f')]).flat()),
      /^The archive has more than 26648576 bytes of names and symlink targets, so hosts refuse it/,
    ],
    ['a hard link', whole(file('x', '', { type: '1', target: 'manifest.json' })), /is neither/],
    ['a repeated file', whole(PLAN), /is in the archive twice/],
    ['a very long name', whole(gnuLong('L', 'n'.repeat(70_000)), file('x')), / has a path of more than 4096 bytes\./],
    // The reader refuses headers above 4 MiB, because it keeps them in memory.
    [
      'a very long header',
      whole(pax({ comment: 'x'.repeat(5 << 20) }), file('x')),
      /is not a single zstd stream of a complete/,
    ],
    ['half a tar', whole().subarray(0, 700), /is not a single zstd stream of a complete tar file/],
    ['random bytes', randomBytes(2000), /is not a single zstd stream of a complete tar file/],
    ['an empty file', Buffer.alloc(0), /contains nothing|is not one zstd stream/],
  ] as const)
    it(`is refused with ${name}, and keeps nothing`, async t => {
      const hub = await runHub(t)
      const response = await sendForm(hub, seal(zstdCompressSync(tar)))
      assert.equal(response.status, 400)
      assert.match(await errorOf(response), message)
      assert.deepEqual(readdirSync(join(hub.dataDir, 'artifacts')), [])
    })

  it('is refused without compression', async t => {
    const response = await sendForm(await runHub(t), seal(whole()))
    assert.match(await errorOf(response), /is not a single zstd stream/)
  })

  for (const [name, tar] of [
    [
      'names that begin with ./',
      buildTar([directory('./'), ...[manifest(), ...PARTS].map(item => ({ ...item, name: `./${item.name}` }))]),
    ],
    [
      'a size in a PAX header',
      digested({ data: HEADER_LIKE }, pax({ size: '1024' }), file('data', HEADER_LIKE, { size: 0 })),
    ],
    [
      'a symlink that stays inside',
      digested({ 'plugins/cart/l': 'version: 1.0.0' }, symlink('plugins/cart/l', '../cart/plugin.yaml')),
    ],
  ] as const)
    it(`is accepted with ${name}`, async t => {
      const response = await sendForm(await runHub(t), seal(zstdCompressSync(tar)))
      assert.equal(response.status, 201, await response.text())
    })

  it('is accepted if our own command has sealed it', async t => {
    assert.equal((await sendForm(await runHub(t), await sealShop(t))).status, 201)
  })
})

/** Packs arbitrary bytes in the encrypted artifact format. */
function seal(plain: Buffer): SealedRelease {
  const [dek, nonce] = [randomBytes(32), randomBytes(12)]
  const cipher = createCipheriv('aes-256-gcm', dek, nonce, { authTagLength: 16 })
  const bytes = Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
  const release = {
    project_id: 'shop',
    version: '1.0.0',
    signature: sign(null, bytes, SIGNING_KEY).toString('base64'),
    signer_public_key: signerPublicKey(SIGNING_KEY),
    dek: dek.toString('base64'),
    content_sha256: createHash('sha256').update(bytes).digest('hex'),
  }
  return { bytes, release }
}
