import assert from 'node:assert/strict'
import { createCipheriv, createHash, randomBytes, sign } from 'node:crypto'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { zstdCompressSync } from 'node:zlib'
import type { SealedRelease } from '../../../hub/project/publish.ts'
import { signerPublicKey } from '../../../hub/project/signing-key.ts'
import { buildTar, directory, file, gnuLong, pax, symlink, type TarItem } from '../../archives/tar-builder.ts'
import { errorOf, runHub } from '../running-hub.ts'
import { SIGNING_KEY, sealShop } from './project-source.ts'
import { sendForm } from './publishing.ts'

const MANIFEST = {
  format_version: '1',
  project_id: 'shop',
  version: '1.0.0',
  plugins: [{ id: 'cart', version: '1.0.0', sha256: 'ab'.repeat(32) }],
  content_sha256: 'ab'.repeat(32),
}
const PLAN = file('deployment/install.yaml', 'project_id: shop\nsteps: []\n')
const PARTS = [PLAN, file('plugins/cart/plugin.yaml', 'version: 1.0.0')]
const manifest = (change: Record<string, unknown> = {}) =>
  file('manifest.json', JSON.stringify({ ...MANIFEST, ...change }))
const whole = (...items: TarItem[]) => buildTar([manifest(), ...PARTS, ...items])

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
    ['a size in a PAX header', whole(pax({ size: '1024' }), file('data', HEADER_LIKE, { size: 0 }))],
    ['a symlink that stays inside', whole(symlink('plugins/cart/l', '../cart/plugin.yaml'))],
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
