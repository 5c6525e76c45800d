import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { readSealedFile, releasePath, sealSource, writeSealedFile } from '../../../hub/commands/project-release.ts'
import { readSourceRegistry } from '../../../hub/project/part-sources.ts'
import { createSigningKey, readSigningKey, signerPublicKey } from '../../../hub/project/seal.ts'
import { withoutRoot } from '../../folders.ts'
import { newShop, sealShop } from '../project/project-source.ts'
import { CLI } from '../run-cli.ts'
import { newFolder } from '../running-hub.ts'

const FORBIDDEN = 'cannot be read (EACCES): correct the path or the permissions.'

describe('a sealed file', () => {
  it('is read with its release', async t => {
    const { bytes, release } = await sealShop(t)
    const file = join(newFolder(t), 'shop.sealed')
    writeSealedFile(file, { bytes, release })
    assert.deepEqual(readSealedFile(file), { bytes, release })
  })

  for (const [name, pathOf] of [
    ['file', (file: string) => file],
    ['release', releasePath],
  ] as const) {
    it(`is refused with a message that names its ${name} if that is missing, a folder or forbidden`, async t => {
      const file = await newSealedFile(t)
      const path = pathOf(file)
      chmodSync(path, 0)
      await withoutRoot(async () => assert.throws(() => readSealedFile(file), refusal(`The file ${path} ${FORBIDDEN}`)))
      rmSync(path)
      const missing = `The file ${path} does not exist: create it with "project seal".`
      assert.throws(() => readSealedFile(file), refusal(missing))
      mkdirSync(path)
      assert.throws(() => readSealedFile(file), refusal(`The file ${path} is a folder: name a file.`))
    })
  }

  for (const [name, pathOf] of [
    ['file', (file: string) => file],
    ['release', releasePath],
  ] as const) {
    it(`replaces no existing ${name}, and leaves no other file`, async t => {
      const sealed = await sealShop(t)
      const file = join(newFolder(t), 'shop.sealed')
      const path = pathOf(file)
      writeFileSync(path, 'mine')
      const message = `${path} already exists and is not overwritten: choose another --out.`
      assert.throws(() => writeSealedFile(file, sealed), refusal(message))
      assert.deepEqual(readdirSync(dirname(file)), [basename(path)])
      assert.equal(readFileSync(path, 'utf8'), 'mine')
    })
  }

  it('is not written into a missing folder, and the message says so', async t => {
    const file = join(newFolder(t), 'missing/shop.sealed')
    const problem = 'cannot be written (ENOENT): choose an --out in an existing folder that you can write to'
    const message = `The file ${releasePath(file)} ${problem} and that has free space.`
    const sealed = await sealShop(t)
    assert.throws(() => writeSealedFile(file, sealed), refusal(message))
  })

  it('is refused with a message that names its release if that is invalid', async t => {
    const file = await newSealedFile(t)
    for (const text of ['', '{', '[]', '{"project_id": 1}']) {
      writeFileSync(releasePath(file), text)
      assert.throws(() => readSealedFile(file), {
        message: new RegExp(
          `^The file ${releasePath(file)} is invalid \\([^]+\\): seal the project again with "project seal"\\.$`,
        ),
      })
    }
  })
})

describe('a file of sources', () => {
  it('is refused with the reason if it is missing or has another form', t => {
    const path = join(newFolder(t), 'sources.json')
    assert.throws(
      () => readSourceRegistry(path),
      refusal(`The file of sources ${path} does not exist: correct --sources.`),
    )
    for (const text of ['', '[]', '{"pay": "payments"}']) {
      writeFileSync(path, text)
      assert.throws(() => readSourceRegistry(path), {
        status: 400,
        message: / must be a JSON object from each part's id /,
      })
    }
    writeFileSync(path, '{"pay": {"source": {"marketplace_slug": "payments"}}}')
    assert.deepEqual(Object.keys(readSourceRegistry(path)), ['pay'])
  })
})

describe('a signing key', () => {
  it('is refused with the reason why it cannot be read', async t => {
    const path = join(newFolder(t), 'signing.pem')
    chmodSync(join(path, '..'), 0o755)
    const missing = `The signing key ${path} does not exist: create one with "project keygen --out FILE".`
    assert.throws(() => readSigningKey(path), refusal(missing))
    createSigningKey(path)
    chmodSync(path, 0)
    await withoutRoot(async () =>
      assert.throws(() => readSigningKey(path), refusal(`The signing key ${path} ${FORBIDDEN}`)),
    )
  })

  it('may be the 32 raw bytes of an Ed25519 key, and nothing else', t => {
    const folder = newFolder(t)
    const key = createSigningKey(join(folder, 'signing.pem'))
    const raw = key.export({ format: 'der', type: 'pkcs8' }).subarray(-32)
    writeFileSync(join(folder, 'raw'), raw)
    assert.equal(signerPublicKey(readSigningKey(join(folder, 'raw'))), signerPublicKey(key))
    for (const bytes of [raw.subarray(1), Buffer.concat([raw, raw]), Buffer.from('')]) {
      writeFileSync(join(folder, 'other'), bytes)
      assert.throws(() => readSigningKey(join(folder, 'other')), {
        status: 400,
        message: / is neither an Ed25519 .* nor the 32 raw /,
      })
    }
  })

  it('leaves no file if it cannot be written completely', t => {
    const folder = newFolder(t)
    const path = join(folder, 'signing.pem')
    const limited = ['-c', 'ulimit -f 0; exec "$@"', 'sh', process.execPath, CLI, 'project', 'keygen', '--out', path]
    const { status, stderr } = spawnSync('sh', limited, { encoding: 'utf8' })
    assert.equal(status, 1)
    assert.ok(stderr.startsWith(`The file ${path} cannot be written (EFBIG): `), stderr)
    assert.deepEqual(readdirSync(folder), [])
  })
})

/** Creates a sealed file in a folder that everybody may read. */
async function newSealedFile(t: TestContext): Promise<string> {
  const folder = newFolder(t)
  chmodSync(folder, 0o755)
  const file = join(folder, 'shop.sealed')
  writeSealedFile(file, await sealShop(t))
  chmodSync(releasePath(file), 0o644)
  return file
}

function refusal(message: string) {
  return { name: 'HubError', status: 400, message }
}

describe('the time of a sealed project', () => {
  for (const [text, written] of [
    ['2026-01-02', '2026-01-02T00:00:00Z'],
    ['2026-01-02T03:04Z', '2026-01-02T03:04:00Z'],
    ['2026-01-02T03:04:05Z', '2026-01-02T03:04:05Z'],
    ['2026-01-02T03:04:05.678+02:00', '2026-01-02T01:04:05Z'],
    ['9999-12-31T23:59:59Z', '9999-12-31T23:59:59Z'],
  ] as const)
    it(`is ${written} with --built-at ${text}`, async t => {
      setEpoch(t, '7')
      assert.equal(await sealedAt(t, text), written)
    })

  for (const text of [
    '',
    ' ',
    'yesterday',
    '1 Jan 2026',
    '2026',
    '2026-01',
    '2026-02-30',
    '2026-01-02 03:04:05Z',
    '2026-01-02T03:04:05',
    '2026-01-02T03:04',
    '2026-01-02T03:04:05Z ',
    '1969-12-31',
    '1970-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-01:00',
  ])
    it(`cannot be --built-at ${JSON.stringify(text)}`, async t => {
      await assert.rejects(sealedAt(t, text), {
        name: 'UsageError',
        message: `The option --built-at must be an ISO 8601 date from 1970 to 9999, such as 2026-01-02, or such a date and time with Z or an offset, such as 2026-01-02T03:04:05Z, not ${JSON.stringify(text)}.`,
      })
    })

  it('is SOURCE_DATE_EPOCH by default', async t => {
    setEpoch(t, '253402300799')
    assert.equal(await sealedAt(t), '9999-12-31T23:59:59Z')
  })

  for (const epoch of [' ', '1e3', '0x10', '-1', '+1', '1.5', ' 1', 'now', '253402300800', '9'.repeat(400)])
    it(`cannot be SOURCE_DATE_EPOCH ${JSON.stringify(epoch.slice(0, 20))}`, async t => {
      setEpoch(t, epoch)
      await assert.rejects(sealedAt(t), {
        name: 'UsageError',
        message: `The environment variable SOURCE_DATE_EPOCH must be the number of seconds since 1970 in digits, up to the year 9999, not ${JSON.stringify(epoch)}: correct it or unset it.`,
      })
    })
})

async function sealedAt(t: TestContext, builtAt?: string): Promise<string> {
  const key = join(newFolder(t), 'signing.pem')
  createSigningKey(key)
  const options = { source: newShop(t), version: '1.0.0', 'signing-key': key, 'built-at': builtAt }
  return (await sealSource(options)).manifest.built_at
}

function setEpoch(t: TestContext, seconds: string): void {
  const { SOURCE_DATE_EPOCH } = process.env
  process.env['SOURCE_DATE_EPOCH'] = seconds
  t.after(() => {
    if (SOURCE_DATE_EPOCH === undefined) delete process.env['SOURCE_DATE_EPOCH']
    else process.env['SOURCE_DATE_EPOCH'] = SOURCE_DATE_EPOCH
  })
}
