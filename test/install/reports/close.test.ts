import assert from 'node:assert/strict'
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { createRedactor } from '../../../src/core/secrets.ts'
import { auditPath, type Layout } from '../../../src/install/host/layout.ts'
import { type ClosedDeployment, closeDeployment } from '../../../src/install/reports/close.ts'
import { localReportSchema } from '../../../src/install/reports/local-report.ts'
import type { Delivery } from '../../../src/install/reports/outbox.ts'
import type { DeploymentEnd } from '../../../src/install/transaction/end.ts'
import { createDeploymentRecord } from '../../../src/install/transaction/record.ts'
import { type CollectedLog, collectLog } from '../collected-log.ts'
import { DEPLOYMENT_ID, factsOf, prepareTemporaryHost, type RecordingSender, senderThat } from '../prepared-host.ts'

const SECRET = 'hunter22'
const ACCEPTED: Delivery = { accepted: true, attempts: 2 }
const FAILED: DeploymentEnd = {
  outcome: 'failed',
  changed: false,
  error: { code: 'authentication_failed', message: `the hub says: key ${SECRET} is unknown`, step: null },
  rollback: null,
  completed_at: '2026-01-02T03:04:07.678Z',
}

interface Closing {
  layout: Layout
  log: CollectedLog
  sender: RecordingSender
  closed: ClosedDeployment
}

async function close(
  t: TestContext,
  delivery: Delivery = ACCEPTED,
  address: string | null = 'http://hub greeter',
  prepare: (layout: Layout) => void = () => {},
  secret = SECRET,
): Promise<Closing> {
  const layout = await prepareTemporaryHost(t)
  prepare(layout)
  const [log, sender] = [collectLog(), senderThat(delivery)]
  const record = createDeploymentRecord(factsOf(), [
    { state: 'pending', at: factsOf().started_at },
    { state: 'failed', at: FAILED.completed_at },
  ])
  const host = { layout, log, sender, redact: createRedactor([secret]), reportTimeoutMs: () => 10_000 }
  return { layout, log, sender, closed: await closeDeployment(host, record, FAILED, address) }
}

function textsBelow(layout: Layout): string[] {
  return [layout.reports, layout.outbox]
    .flatMap(folder => readdirSync(folder).map(name => join(folder, name)))
    .concat(auditPath(layout))
    .map(path => readFileSync(path, 'utf8'))
}

describe('closeDeployment', () => {
  it('writes one local report, 0600, of the agreed form', async t => {
    const { layout, closed } = await close(t)
    assert.deepEqual(readdirSync(layout.reports), ['2026-01-02T03-04-05.678Z-greeter.json'])
    assert.equal(statSync(closed.reportPath as string).mode & 0o777, 0o600)
    const report = localReportSchema.parse(JSON.parse(readFileSync(closed.reportPath as string, 'utf8')))
    assert.deepEqual(
      [report.outcome, report.status, report.state, report.duration_ms, report.reported],
      ['failed', 'failed', 'failed', 2000, { accepted: true, attempts: 2, error: null }],
    )
  })

  it('lets no secret into a file or over the wire', async t => {
    const refused: Delivery = {
      accepted: false,
      attempts: 1,
      status: 403,
      error: `no such key: ${SECRET}`,
      final: true,
    }
    const { layout, sender } = await close(t, refused)
    assert.equal(sender.sent.length, 1)
    for (const text of [...textsBelow(layout), JSON.stringify(sender.sent)]) assert.ok(!text.includes(SECRET), text)
  })

  for (const secret of ['"outcome":', 'null,', 'true', 'failed']) {
    it(`stays readable when a hub gives out ${secret} as a token`, async t => {
      const refused: Delivery = { accepted: false, attempts: 1, status: 500, error: 'no', final: false }
      const { layout } = await close(t, refused, undefined, undefined, secret)
      for (const text of textsBelow(layout)) {
        const { report = JSON.parse(text) } = JSON.parse(text)
        assert.equal(report.outcome, 'failed')
      }
    })
  }

  it('appends one audit line, 0600', async t => {
    const { layout } = await close(t, ACCEPTED, null, host =>
      writeFileSync(auditPath(host), 'earlier\n', { mode: 0o600 }),
    )
    const [first, second, ...rest] = readFileSync(auditPath(layout), 'utf8').split('\n')
    assert.equal(first, 'earlier')
    assert.deepEqual(rest, [''])
    const { at, deployment_id, outcome, error_code, actor } = JSON.parse(second as string)
    assert.deepEqual(
      [at, deployment_id, outcome, error_code, actor],
      [FAILED.completed_at, DEPLOYMENT_ID, 'failed', 'authentication_failed', 'operator'],
    )
    assert.equal(statSync(auditPath(layout)).mode & 0o777, 0o600)
  })

  it('makes a refused report one warning and an outbox file, and changes no outcome', async t => {
    const { layout, log, closed } = await close(t, {
      accepted: false,
      attempts: 4,
      status: 500,
      error: 'the hub is down',
      final: false,
    })
    assert.equal(log.lines.filter(line => line.startsWith('warning')).length, 1)
    assert.equal(readdirSync(layout.outbox).length, 1)
    assert.equal(closed.report.outcome, 'failed')
    assert.deepEqual(closed.report.reported, { accepted: false, attempts: 4, error: 'the hub is down' })
  })

  it('tells nobody when there is no hub to tell', async t => {
    const { layout, sender } = await close(t, ACCEPTED, null)
    assert.deepEqual([sender.sent, readdirSync(layout.outbox)], [[], []])
  })

  it('keeps a report for the hub where it belongs', async t => {
    const { layout, sender } = await close(t, ACCEPTED, 'http://other greeter')
    assert.deepEqual(sender.sent, [])
    const [name] = readdirSync(layout.outbox)
    assert.equal(JSON.parse(readFileSync(join(layout.outbox, name as string), 'utf8')).address, 'http://other greeter')
  })

  it('tells once what could not be written, for below the cause', async t => {
    const down: Delivery = { accepted: false, attempts: 1, status: null, error: 'the hub is down', final: false }
    const { log, closed } = await close(t, down, undefined, ({ own }) => rmSync(own, { recursive: true }))
    assert.equal(log.lines.length, 1)
    assert.ok(!log.lines[0]?.includes('Could not write'), log.lines[0])
    const told = /^Could not write the local report, the report in the outbox, the audit line: [^:]/
    assert.match(closed.unwritten ?? '', told)
  })

  it('has nothing to tell where all was written', async t => {
    const { closed } = await close(t, ACCEPTED)
    assert.equal(closed.unwritten, undefined)
  })

  it('throws nothing when nothing can be written', async t => {
    const { log, closed, sender } = await close(t, ACCEPTED, undefined, ({ own }) => rmSync(own, { recursive: true }))
    assert.equal(closed.reportPath, undefined)
    assert.equal(sender.sent.length, 1)
    assert.deepEqual(log.lines, [])
  })
})
