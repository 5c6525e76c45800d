import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { Layout } from '../../../src/install/host/layout.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import { closeDeployment } from '../../../src/install/reports/close.ts'
import { writeLocalReport } from '../../../src/install/reports/local-report.ts'
import { keepInOutbox, sendOutbox } from '../../../src/install/reports/outbox.ts'
import { type Delivery, type ReportSender, refused } from '../../../src/install/reports/sender.ts'
import { createDeploymentRecord } from '../../../src/install/transaction/record.ts'
import { hostOf } from '../prepared-deployment.ts'
import {
  collectLog,
  DEPLOYMENT_ID,
  factsOf,
  NO_SECRETS,
  prepareTemporaryHost,
  reportOf,
  senderThat,
} from '../prepared-host.ts'

const HERE = 'http://hub greeter'

async function keep(layout: Layout, startedAt: string, address = HERE): Promise<void> {
  const report = reportOf({ deployment_id: randomUUID(), started_at: startedAt })
  await keepInOutbox(hostOf(layout), { address, report })
}

/** The times at which the waiting reports began, in the order of their names. */
function waitingSince({ outbox }: Layout): string[] {
  const names = readdirSync(outbox).toSorted((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10))
  return names.map(name => JSON.parse(readFileSync(join(outbox, name), 'utf8')).report.started_at)
}

describe('keepInOutbox', () => {
  it('writes the report redacted, 0600', async t => {
    const layout = await prepareTemporaryHost(t)
    const error = { code: 'network' as const, message: 'key hunter22 was refused', step: null }
    const secrets = { redact: (text: string): string => text.replaceAll('hunter22', '***') }
    await keepInOutbox({ ...hostOf(layout), secrets }, { address: HERE, report: reportOf({ error }) })
    const [name] = readdirSync(layout.outbox)
    const path = join(layout.outbox, name as string)
    assert.equal(statSync(path).mode & 0o777, 0o600)
    assert.doesNotMatch(readFileSync(path, 'utf8'), /hunter22/)
  })

  it('writes no more than the local report contains', async t => {
    const layout = await prepareTemporaryHost(t)
    const step = { id: 'ok', action: 'healthcheck', status: 'done', duration_ms: 1, error: null } as const
    const people = { did: 'HTTP 200', checked: ['greeter'] }
    const report = reportOf({ previous_sha256: 'cd'.repeat(32), unrecorded: true, steps: [{ ...step, ...people }] })
    await keepInOutbox(hostOf(layout), { address: HERE, report })
    const path = await writeLocalReport({ layout, secrets: NO_SECRETS }, report)
    const waiting = JSON.parse(readFileSync(join(layout.outbox, readdirSync(layout.outbox)[0] as string), 'utf8'))
    assert.deepEqual(waiting.report, JSON.parse(readFileSync(path, 'utf8')))
    assert.deepEqual([waiting.report.steps, 'unrecorded' in waiting.report], [[step], false])
  })

  it('does not fill the disk if every run is refused before it sends anything, and says once which reports it drops', async t => {
    const layout = await prepareTemporaryHost(t)
    const host = { ...hostOf(layout), log: collectLog() }
    const timeOf = (index: number) => new Date(NOW.getTime() + index * 1000).toISOString()
    for (let index = 0; index < 401; index++) {
      const at = timeOf(index)
      const report = reportOf({ deployment_id: randomUUID(), started_at: at, completed_at: at })
      await keepInOutbox(host, { address: HERE, report })
    }
    const waiting = waitingSince(layout)
    assert.deepEqual([waiting.length, waiting[0]], [200, timeOf(201)])
    assert.deepEqual(host.log.lines.length, 1)
    assert.match(host.log.lines[0] ?? '', /Dropped 201 reports from the outbox /)
  })
})

const NEVER = new AbortController().signal
/** A time shortly after the reports of the tests below. */
const NOW = new Date('2026-01-04T00:00:00.000Z')

describe('sendOutbox', () => {
  it('leaves the order of the waiting reports as it is when one of them is replaced', async t => {
    const layout = await prepareTemporaryHost(t)
    await keepInOutbox(hostOf(layout), { address: HERE, report: reportOf({ started_at: '2026-01-01T00:00:00.000Z' }) })
    await keep(layout, '2026-01-02T00:00:00.000Z')
    const again = reportOf({ started_at: '2026-01-01T00:00:00.000Z', status: 'failed' })
    await keepInOutbox(hostOf(layout), { address: HERE, report: again })
    const sender = senderThat({ accepted: true, attempts: 1 })
    await sendOutbox({ layout, sender, log: collectLog(), secrets: NO_SECRETS, signal: NEVER }, NOW)
    assert.deepEqual(
      sender.sent.map(({ report }) => [report.started_at.slice(8, 10), report.status]),
      [
        ['01', 'failed'],
        ['02', 'success'],
      ],
    )
  })

  it('sends the waiting reports before that of the run itself, and no earlier one of the same run', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    await keep(layout, '2026-01-03T00:00:00.000Z')
    await keepInOutbox(hostOf(layout), {
      address: HERE,
      report: reportOf({ status: 'failed', outcome: 'inconsistent' }),
    })
    const [record, end] = [createDeploymentRecord(factsOf(), []), buildEnd(NOW, { outcome: 'rolled_back' })]
    await closeDeployment(hostOf(layout, { sender }), { record, end, address: HERE, isLocked: true })
    assert.deepEqual(
      sender.sent.map(({ report }) => [report.deployment_id === DEPLOYMENT_ID, report.status]),
      [
        [false, 'success'],
        [true, 'rolled_back'],
      ],
    )
    assert.deepEqual(readdirSync(layout.outbox), [])
  })

  it('sends nothing after a cancel', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    await keep(layout, '2026-01-01T00:00:00.000Z')
    await sendOutbox({ layout, sender, log: collectLog(), secrets: NO_SECRETS, signal: AbortSignal.abort() }, NOW)
    assert.equal(sender.sent.length, 0)
  })

  it('sends each waiting report of its own address once, in the order of the runs, whatever the clock said', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    for (const day of ['03', '01', '02']) await keep(layout, `2026-01-${day}T00:00:00.000Z`)
    await sendOutbox({ layout, sender, log: collectLog(), secrets: NO_SECRETS, signal: NEVER }, NOW)
    await sendOutbox({ layout, sender, log: collectLog(), secrets: NO_SECRETS, signal: NEVER }, NOW)
    assert.deepEqual(
      sender.sent.map(({ report, retry }) => [report.started_at.slice(8, 10), retry]),
      [
        ['03', false],
        ['01', false],
        ['02', false],
      ],
    )
    assert.deepEqual(readdirSync(layout.outbox), [])
  })

  it('never sends a report to an address other than its own', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    await keep(layout, '2026-01-01T00:00:00.000Z', 'http://other greeter')
    await sendOutbox({ layout, sender, log: collectLog(), secrets: NO_SECRETS, signal: NEVER }, NOW)
    assert.deepEqual(sender.sent, [])
    assert.equal(readdirSync(layout.outbox).length, 1)
  })

  const deliveries: Record<string, { delivery: Delivery; sent: number; left: number; warnings?: number }> = {
    'skips a report that the hub cannot accept': {
      delivery: { accepted: false, attempts: 1, status: 500, error: 'broken', final: false },
      sent: 3,
      left: 3,
    },
    'stops when the hub does not answer twice in a row': {
      delivery: { accepted: false, attempts: 1, status: null, error: 'down', final: false },
      sent: 2,
      left: 3,
    },
    'stops when the hub asks for patience': {
      delivery: { accepted: false, attempts: 1, status: 429, error: 'later', final: false },
      sent: 1,
      left: 3,
    },
    'keeps a report that the hub does not accept with these credentials': {
      delivery: refused(401, { attempts: 1, error: 'the hub answered 401.' }),
      sent: 3,
      left: 3,
      warnings: 1,
    },
    'drops a report that the hub refuses for good': {
      delivery: refused(400, { attempts: 1, error: 'no' }),
      sent: 3,
      left: 0,
    },
  }
  for (const [name, { delivery, sent, left, warnings = sent }] of Object.entries(deliveries)) {
    it(name, async t => {
      const layout = await prepareTemporaryHost(t)
      const sender = senderThat(delivery)
      const log = collectLog()
      for (const day of ['01', '02', '03']) await keep(layout, `2026-01-${day}T00:00:00.000Z`)
      await sendOutbox({ layout, sender, log, secrets: NO_SECRETS, signal: NEVER }, NOW)
      assert.deepEqual([sender.sent.length, readdirSync(layout.outbox).length], [sent, left])
      assert.equal(log.lines.filter(line => line.startsWith('warning')).length, warnings)
    })
  }

  it('sends newer reports although older ones need other credentials, and tries only a few of the older ones', async t => {
    const layout = await prepareTemporaryHost(t)
    const log = collectLog()
    const days = Array.from({ length: 20 }, (_, index) => String(index + 1).padStart(2, '0'))
    for (const day of days) await keep(layout, `2025-12-${day}T00:00:00.000Z`)
    const sent: string[] = []
    const sender: ReportSender = {
      address: HERE,
      send: async ({ started_at }) => {
        sent.push(started_at.slice(8, 10))
        if (started_at < '2025-12-18')
          return refused(403, { attempts: 1, error: 'the hub answered 403 (not this one)' })
        return { accepted: true, attempts: 1 }
      },
    }
    await sendOutbox({ layout, sender, log, secrets: NO_SECRETS, signal: NEVER }, new Date('2025-12-21T00:00:00.000Z'))
    assert.deepEqual(sent, ['01', '20', '19', '18', '17', '16', '15', '14'])
    assert.equal(readdirSync(layout.outbox).length, 17)
    const warnings = log.lines.filter(line => line.startsWith('warning'))
    assert.equal(warnings.length, 1)
    assert.match(warnings.join(), /403 \(not this one\)\. 17 reports wait/)
  })

  it('leaves foreign files alone, and continues', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    writeFileSync(join(layout.outbox, '0.json'), '{"schema":1}')
    writeFileSync(join(layout.outbox, 'notes.txt'), '')
    await keep(layout, '2026-01-01T00:00:00.000Z')
    await sendOutbox({ layout, sender, log: collectLog(), secrets: NO_SECRETS, signal: NEVER }, NOW)
    assert.equal(sender.sent.length, 1)
    assert.deepEqual(readdirSync(layout.outbox), ['0.json', 'notes.txt'])
  })

  it('delivers the reports behind one that the hub answers with 500', async t => {
    const layout = await prepareTemporaryHost(t)
    for (const day of ['01', '02', '03']) await keep(layout, `2026-01-${day}T00:00:00.000Z`)
    const sender: ReportSender = {
      address: HERE,
      send: async ({ started_at }) =>
        started_at.startsWith('2026-01-01')
          ? { accepted: false, attempts: 1, status: 500, error: 'broken', final: false }
          : { accepted: true, attempts: 1 },
    }
    await sendOutbox({ layout, sender, log: collectLog(), secrets: NO_SECRETS, signal: NEVER }, NOW)
    assert.deepEqual(waitingSince(layout), ['2026-01-01T00:00:00.000Z'])
  })

  it('sends all waiting reports, and then keeps only the newest 200 of each address', async t => {
    const layout = await prepareTemporaryHost(t)
    const there = 'http://hub another'
    for (let index = 0; index < 203; index++) {
      const at = new Date(NOW.getTime() - 1_000_000 + index * 1000).toISOString()
      const here = reportOf({ deployment_id: randomUUID(), started_at: at, completed_at: at })
      await keepInOutbox(hostOf(layout), { address: HERE, report: here })
      if (index < 3) await keep(layout, at, there)
    }
    const outbox = { layout, log: collectLog(), secrets: NO_SECRETS }
    const broken = senderThat({ accepted: false, attempts: 1, status: 500, error: 'broken', final: false })
    await sendOutbox({ ...outbox, sender: broken, signal: NEVER }, NOW)
    assert.deepEqual([broken.sent.length, readdirSync(layout.outbox).length], [203, 203])
    const another = senderThat({ accepted: true, attempts: 1 }, there)
    await sendOutbox({ ...outbox, sender: another, signal: NEVER }, NOW)
    assert.deepEqual([another.sent.length, readdirSync(layout.outbox).length], [3, 200])
  })

  it('drops a report to a retired hub after 30 days', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    await keep(layout, '2026-01-01T00:00:00.000Z', 'http://retired greeter')
    const outbox = { layout, sender, log: collectLog(), secrets: NO_SECRETS }
    await sendOutbox({ ...outbox, signal: NEVER }, new Date('2026-02-01T00:00:00.000Z'))
    assert.equal(readdirSync(layout.outbox).length, 1)
    await sendOutbox({ ...outbox, signal: NEVER }, new Date('2026-02-02T00:00:00.000Z'))
    assert.equal(readdirSync(layout.outbox).length, 0)
  })

  it('names a directory in place of a report, and fails no run, however many there are', async t => {
    const layout = await prepareTemporaryHost(t)
    for (let index = 0; index < 203; index++) mkdirSync(join(layout.outbox, `${1000 + index}.json`))
    await keep(layout, '2026-01-01T00:00:00.000Z')
    const [sender, log] = [senderThat({ accepted: true, attempts: 1 }), collectLog()]
    await sendOutbox({ layout, sender, log, secrets: NO_SECRETS, signal: NEVER }, NOW)
    assert.deepEqual([sender.sent.length, readdirSync(layout.outbox).length], [1, 203])
    assert.match(log.lines.join('\n'), /1000\.json.* and 198 more.*remove them/)
  })

  it('logs a warning, and fails no run, when its folder cannot be listed', async t => {
    const layout = await prepareTemporaryHost(t)
    const [sender, log] = [senderThat({ accepted: true, attempts: 1 }), collectLog()]
    rmSync(layout.outbox, { recursive: true })
    writeFileSync(layout.outbox, '')
    await sendOutbox({ layout, sender, log, secrets: NO_SECRETS, signal: NEVER }, NOW)
    assert.equal(log.lines.filter(line => line.startsWith('warning')).length, 1)
    assert.ok(log.lines.join('\n').includes(layout.outbox))
  })

  it('notes in the local report that the hub has accepted it, and never sends it again', async t => {
    const layout = await prepareTemporaryHost(t)
    const [report, sender] = [reportOf(), senderThat({ accepted: true, attempts: 1 })]
    const host = hostOf(layout, { sender })
    const path = await writeLocalReport(host, report)
    await keepInOutbox(host, { address: HERE, report })
    const outbox = { layout, sender, log: collectLog(), secrets: NO_SECRETS }
    await sendOutbox({ ...outbox, signal: NEVER }, NOW)
    assert.equal(JSON.parse(readFileSync(path, 'utf8')).reported.accepted, true)
    // As if the entry in the outbox and the journal could not be removed.
    await keepInOutbox(host, { address: HERE, report })
    await sendOutbox({ ...outbox, signal: NEVER }, NOW)
    const record = createDeploymentRecord(factsOf(), [])
    const end = buildEnd(new Date(report.completed_at), { outcome: 'success' })
    const { report: again } = await closeDeployment(host, { record, end, address: HERE })
    assert.deepEqual([sender.sent.length, again.deployment_id, again.reported.accepted], [1, DEPLOYMENT_ID, true])
    assert.deepEqual(readdirSync(layout.outbox), [])
  })

  it('sends a report again if its status has changed', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat({ accepted: true, attempts: 1 })
    const host = hostOf(layout, { sender })
    const accepted = { accepted: true, attempts: 1, error: null }
    await writeLocalReport(host, reportOf({ status: 'failed', outcome: 'inconsistent', reported: accepted }))
    const end = buildEnd(NOW, { outcome: 'rolled_back' })
    await closeDeployment(host, { record: createDeploymentRecord(factsOf(), []), end, address: HERE })
    assert.equal(sender.sent.length, 1)
  })
})
