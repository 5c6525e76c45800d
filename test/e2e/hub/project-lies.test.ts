import assert from 'node:assert/strict'
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { zstdCompressSync } from 'node:zlib'
import { whyLeftToCi } from '../../extent.ts'
import { readLocalReport } from '../harness/evidence.ts'
import {
  assertRefusesProject,
  itRefuses,
  type Lie,
  openDeployedStage,
  TO_ARTIFACT,
  TO_DOWNLOAD,
  TO_KEY,
} from '../harness/project-evidence.ts'
import type { ProjectStage } from '../harness/project-stage.ts'
import { type Answer, answerJson } from '../harness/untrusted-hub.ts'
import {
  answersOf,
  descriptorOf,
  goodOffer,
  projectTar,
  type SealedOffer,
  sealTar,
  serveUntrustedProjectHub,
  signed,
} from '../harness/untrusted-project-hub.ts'

const OTHER_KEY = generateKeyPairSync('ed25519')
const OTHER_PUBLIC_KEY = OTHER_KEY.publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64')

let stage: ProjectStage
before(async () => {
  stage = await openDeployedStage()
})
after(() => stage.close())

/** The cases that run outside CI, too. The code that the other cases reach is also tested without a process. */
const TRIED = new Set([
  'a signer that is not pinned',
  'a plain http address elsewhere',
  'an endless artifact, which is cut off',
  'the signature of another key',
  'signed bytes that are not the pinned ones',
  'a credential that was revoked',
  'another key',
  'a tag of 4 bytes',
  'a changed ciphertext that is signed',
])

function refuses(name: string, lie: Lie): void {
  if (TRIED.has(name) || whyLeftToCi() === false) itRefuses(name, () => stage, lie)
  else it(name, { skip: whyLeftToCi() })
}

describe('a project deployment refuses, before anything is downloaded,', () => {
  const lie = { during: 'requesting_artifact', asked: TO_ARTIFACT } as const
  const describes = (more: Record<string, unknown>) => (on: ProjectStage, offer: SealedOffer) => ({
    artifact: answerJson(200, descriptorOf(on, offer, more)),
  })
  const untrusted = { ...lie, code: 'untrusted_signer' } as const
  refuses('a signer that is not pinned', { ...untrusted, answers: describes({ signer_public_key: OTHER_PUBLIC_KEY }) })
  refuses('a pinned signer in another form', {
    ...untrusted,
    answers: (on, offer) =>
      describes({ signer_public_key: Buffer.from(on.signerPublicKey, 'base64').toString('hex') })(on, offer),
  })
  refuses('a missing signature', { ...lie, code: 'missing_signature', answers: describes({ signature: undefined }) })
  refuses('a signature of 63 bytes', {
    ...lie,
    code: 'invalid_signature_format',
    answers: describes({ signature: randomBytes(63).toString('base64') }),
  })
  refuses('a plain http address elsewhere', {
    ...lie,
    during: 'downloading',
    code: 'insecure_url',
    answers: describes({ download_url: 'http://storage.example/blob' }),
  })
  refuses('an address that is a file', {
    ...lie,
    code: 'insecure_url',
    answers: describes({ download_url: 'file:///etc/passwd' }),
  })
  refuses('a hub that refuses the artifact', {
    ...lie,
    code: 'artifact_unavailable',
    answers: () => ({ artifact: answerJson(403, { error: 'not for you' }) }),
    says: /403.*not for you/,
  })
  refuses('a version that is a path', {
    ...lie,
    code: 'bad_response',
    asked: ['auth', 'latest'],
    inputs: { version: 'latest' },
    answers: () => ({ latest: answerJson(200, { version: '../../../x' }) }),
  })
})

describe('a project deployment refuses, before it requests the key,', () => {
  const lie = { during: 'verifying_signature', asked: TO_DOWNLOAD } as const
  const mismatch = { ...lie, code: 'signature_mismatch' } as const
  const endless: Answer = response => {
    const send = () => {
      while (!response.destroyed && response.write(Buffer.alloc(64 * 1024)));
    }
    response.on('drain', send)
    send()
  }
  refuses('an endless artifact, which is cut off', {
    ...lie,
    during: 'downloading',
    code: 'archive_too_large',
    inputs: { 'max-artifact-bytes': '1000000' },
    answers: () => ({ download: endless }),
  })
  refuses('an artifact that is announced as too large', {
    ...lie,
    during: 'downloading',
    code: 'archive_too_large',
    inputs: { 'max-artifact-bytes': '100' },
  })
  refuses('an artifact that no value of max-artifact-bytes allows', {
    ...lie,
    during: 'downloading',
    code: 'archive_too_large',
    inputs: { 'max-artifact-bytes': '2147483647' },
    answers: () => ({ download: response => response.writeHead(200, { 'Content-Length': '2147483648' }).write('x') }),
    says: /more than the 2147483647 that this action can process.* The publisher must make the artifact smaller\./,
  })
  refuses('bytes that were changed on the way', {
    ...mismatch,
    answers: (_, { bytes }) => ({ download: sends(flipped(bytes)) }),
  })
  refuses('bytes that were added', {
    ...mismatch,
    answers: (_, { bytes }) => ({ download: sends(Buffer.concat([bytes, Buffer.alloc(1)])) }),
  })
  refuses('no bytes at all', { ...mismatch, answers: () => ({ download: sends(Buffer.alloc(0)) }) })
  refuses('the signature of another key', {
    ...mismatch,
    offer: on => ({ ...goodOffer(on), signature: goodOffer({ ...on, signingKey: OTHER_KEY.privateKey }).signature }),
  })
  refuses('a signature that leaves out the nonce', {
    ...mismatch,
    offer: on => {
      const offer = goodOffer(on)
      return { ...offer, signature: signed(offer.bytes.subarray(12), on.signingKey).signature }
    },
  })
  refuses('the signature of the plaintext', {
    ...mismatch,
    offer: on => ({ ...goodOffer(on), signature: signed(zstdCompressSync(projectTar()), on.signingKey).signature }),
  })
  refuses('signed bytes that are not the pinned ones', {
    ...lie,
    code: 'digest_mismatch',
    inputs: { 'artifact-sha256': 'a'.repeat(64) },
  })
  refuses('signed bytes other than those that this host has under the same version', {
    ...lie,
    code: 'version_reused',
    inputs: { version: '1.0.0' },
    offer: on => sealTar(projectTar({ manifest: { version: '1.0.0' } }), on.signingKey),
  })

  it('a host whose plugins directory has become a file', async t => {
    const [plugins, aside] = [join(stage.root, 'plugins'), join(stage.root, 'aside')]
    const offer = goodOffer(stage)
    const download: Answer = response => {
      renameSync(plugins, aside)
      writeFileSync(plugins, 'in the way')
      response.end(offer.bytes)
    }
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, offer, { download }))
    const { outputs } = await stage.deploy({ 'hub-url': hub.url, version: '2.0.0' })
    rmSync(plugins)
    renameSync(aside, plugins)
    assert.equal(outputs['error-code'], 'host_not_writable')
    assert.deepEqual(hub.asked(), [...TO_DOWNLOAD, 'report'])
  })
})

describe('a project deployment refuses, before it uses any of the artifact,', () => {
  const decrypting = { code: 'decryption_failed', during: 'decrypting', asked: TO_KEY } as const
  const releases = (dek: (offer: SealedOffer) => string) => (_: ProjectStage, offer: SealedOffer) => ({
    authorize: answerJson(200, { dek: dek(offer) }),
  })
  refuses('a credential that was revoked', {
    code: 'authentication_failed',
    during: 'obtaining_key',
    asked: TO_KEY,
    answers: () => ({ authorize: answerJson(403, { error: 'credential revoked yesterday' }) }),
    says: /403.*credential revoked yesterday/,
  })
  refuses('a hub that breaks down instead of releasing the key', {
    code: 'artifact_unavailable',
    during: 'obtaining_key',
    asked: TO_KEY,
    answers: () => ({ authorize: answerJson(500, { error: 'no store' }) }),
    says: /500.*no store/,
  })
  refuses('another key', { ...decrypting, answers: releases(() => randomBytes(32).toString('base64')) })
  refuses('a key of 16 bytes', {
    ...decrypting,
    during: 'obtaining_key',
    answers: releases(({ dek }) => dek.subarray(0, 16).toString('base64')),
  })
  refuses('a key in hex', {
    ...decrypting,
    during: 'obtaining_key',
    answers: releases(({ dek }) => dek.toString('hex')),
  })
  for (const [what, cut] of Object.entries({ 'a tag of 4 bytes': 12, 'a tag of 15 bytes': 1, 'no tag': 16 })) {
    refuses(what, { ...decrypting, offer: on => resigned(on, bytes => bytes.subarray(0, -cut)) })
  }
  refuses('a changed ciphertext that is signed', { ...decrypting, offer: on => resigned(on, flipped) })
  refuses('a nonce and a tag with nothing between them', {
    ...decrypting,
    offer: on => resigned(on, bytes => bytes.subarray(0, 28)),
  })
})

describe('a project deployment with several pinned signers', () => {
  it('names in the local report the signer whose signature matched', async t => {
    const offer = goodOffer(stage)
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, offer))
    const root = join(stage.folder, 'rotating')
    mkdirSync(root)
    const pinned = `${OTHER_PUBLIC_KEY}\n${Buffer.from(stage.signerPublicKey, 'base64').toString('hex')}\n`
    const inputs = { 'hub-url': hub.url, 'project-root': root, 'signer-public-key': pinned }
    const result = await stage.deploy(inputs)
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(readLocalReport(result).signer_public_key, stage.signerPublicKey)
  })

  it('trusts each signer only for the artifacts that the hub attributes to that signer', async t => {
    const offer = goodOffer(stage)
    const artifact = answerJson(200, descriptorOf(stage, offer, { signer_public_key: OTHER_PUBLIC_KEY }))
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, offer, { artifact }))
    const inputs = { 'signer-public-key': `${OTHER_PUBLIC_KEY}\n${stage.signerPublicKey}` }
    const refusal = { code: 'signature_mismatch', during: 'verifying_signature', asked: TO_DOWNLOAD, inputs } as const
    const result = await assertRefusesProject(stage, hub, refusal)
    assert.equal(readLocalReport(result).signer_public_key, undefined)
  })
})

function sends(bytes: Buffer): Answer {
  return response => response.end(bytes)
}

/** The bytes with one bit in the middle flipped. */
function flipped(bytes: Buffer): Buffer {
  const copy = Buffer.from(bytes)
  const middle = copy.length >> 1
  copy[middle] = (copy[middle] ?? 0) ^ 1
  return copy
}

/** A good offer whose sealed bytes were changed before they were signed. */
function resigned(on: ProjectStage, change: (bytes: Buffer) => Buffer): SealedOffer {
  const offer = goodOffer(on)
  return { ...offer, ...signed(change(offer.bytes), on.signingKey) }
}
