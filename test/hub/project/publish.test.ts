import assert from 'node:assert/strict'
import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { listProjects, revokeProjectVersion } from '../../../hub/project/catalogue.ts'
import { decryptDek, encryptDek } from '../../../hub/project/dek-cipher.ts'
import { decryptPieces, PIECE_BYTES } from '../../../hub/project/encrypt.ts'
import { publishProject, type Release } from '../../../hub/project/publish.ts'
import type { SealedProject } from '../../../hub/project/seal.ts'
import { signerPublicKey } from '../../../hub/project/signing-key.ts'
import { openStore, type Store } from '../../../hub/store.ts'
import { newFolder, runHub } from '../running-hub.ts'
import { publishShop, SIGNING_KEY, sealShop } from './project-source.ts'
import { sendForm } from './publishing.ts'

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
