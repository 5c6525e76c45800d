import assert from 'node:assert/strict'
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { Layout } from '../../../src/install/host/layout.ts'
import { type Delivery, keepInOutbox, sendOutbox } from '../../../src/install/reports/outbox.ts'
import { collectLog } from '../collected-log.ts'
import { hostOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost, reportOf, senderThat } from '../prepared-host.ts'

const HERE = 'http://hub greeter'

async function keep(layout: Layout, startedAt: string, address = HERE): Promise<void> {
  await keepInOutbox(hostOf(layout), address, reportOf({ started_at: startedAt }))
}

describe('keepInOutbox', () => {
  it('writes the report redacted, 0600', async t => {
    const layout = await prepareTemporaryHost(t)
    const error = { code: 'network' as const, message: 'key hunter22 was refused', step: null }
    const redact = (text: string): string => text.replaceAll('hunter22', '***')
    await keepInOutbox({ layout, redact }, HERE, reportOf({ error }))
    const [name] = readdirSync(layout.outbox)
    const path = join(layout.outbox, name as string)
    assert.equal(statSync(path).mode & 0o777, 0o600)
    assert.doesNotMatch(readFileSync(path, 'utf8'), /hunter22/)
  })
})

const NEVER = new AbortController().signal

describe('sendOutbox', () => {
  it('sends nothing after a cancel', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    await keep(layout, '2026-01-01T00:00:00.000Z')
    await sendOutbox({ layout, sender, log: collectLog() }, AbortSignal.abort())
    assert.equal(sender.sent.length, 0)
  })

  it('sends each waiting report of its own address once, oldest first', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    for (const day of ['03', '01', '02']) await keep(layout, `2026-01-${day}T00:00:00.000Z`)
    await sendOutbox({ layout, sender, log: collectLog() }, NEVER)
    await sendOutbox({ layout, sender, log: collectLog() }, NEVER)
    assert.deepEqual(
      sender.sent.map(({ report, retry }) => [report.started_at.slice(8, 10), retry]),
      [
        ['01', false],
        ['02', false],
        ['03', false],
      ],
    )
    assert.deepEqual(readdirSync(layout.outbox), [])
  })

  it('never sends a report to another address than its own', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    await keep(layout, '2026-01-01T00:00:00.000Z', 'http://other greeter')
    await sendOutbox({ layout, sender, log: collectLog() }, NEVER)
    assert.deepEqual(sender.sent, [])
    assert.equal(readdirSync(layout.outbox).length, 1)
  })

  const deliveries: Record<string, { delivery: Delivery; sent: number; left: number }> = {
    'stops at the first while the hub is down': {
      delivery: { accepted: false, attempts: 1, status: 500, error: 'down', final: false },
      sent: 1,
      left: 2,
    },
    'drops what the hub finally refuses': {
      delivery: { accepted: false, attempts: 1, status: 400, error: 'no', final: true },
      sent: 2,
      left: 0,
    },
  }
  for (const [name, { delivery, sent, left }] of Object.entries(deliveries)) {
    it(name, async t => {
      const layout = await prepareTemporaryHost(t)
      const sender = senderThat(delivery)
      const log = collectLog()
      for (const day of ['01', '02']) await keep(layout, `2026-01-${day}T00:00:00.000Z`)
      await sendOutbox({ layout, sender, log }, NEVER)
      assert.deepEqual([sender.sent.length, readdirSync(layout.outbox).length], [sent, left])
      assert.equal(log.lines.filter(line => line.startsWith('warning')).length, sent)
    })
  }

  it('leaves foreign files alone, and continues', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    writeFileSync(join(layout.outbox, '0.json'), '{"schema":1}')
    writeFileSync(join(layout.outbox, 'notes.txt'), '')
    await keep(layout, '2026-01-01T00:00:00.000Z')
    await sendOutbox({ layout, sender, log: collectLog() }, NEVER)
    assert.equal(sender.sent.length, 1)
    assert.deepEqual(readdirSync(layout.outbox), ['0.json', 'notes.txt'])
  })

  it('keeps the newest 200 and drops older ones', async t => {
    const layout = await prepareTemporaryHost(t)
    for (let index = 0; index < 203; index++) writeFileSync(join(layout.outbox, `${1000 + index}.json`), '{}')
    const sender = senderThat({ accepted: true, attempts: 1 })
    await sendOutbox({ layout, sender, log: collectLog() }, NEVER)
    const names = readdirSync(layout.outbox)
    assert.deepEqual([names.length, names.sort()[0]], [200, '1003.json'])
  })
})
