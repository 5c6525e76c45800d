import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { sealSource } from '../../../hub/commands/project/seal-options.ts'
import { createSigningKey } from '../../../hub/project/signing-key.ts'
import { newFolder } from '../running-hub.ts'
import { newShop } from './project-source.ts'

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
