import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { createRedactor } from '../../../src/core/text.ts'
import { auditPath, type Layout } from '../../../src/install/host/layout.ts'
import { buildEnd } from '../../../src/install/journal/facts.ts'
import { closeDeployment } from '../../../src/install/reports/close.ts'
import { localReportSchema, notSent } from '../../../src/install/reports/local-report.ts'
import type { RunResult } from '../../../src/install/reports/result.ts'
import type { Delivery } from '../../../src/install/reports/sender.ts'
import { createDeploymentRecord } from '../../../src/install/transaction/record.ts'
import { hostOf, newRecord } from '../prepared-deployment.ts'
import {
  type CollectedLog,
  collectLog,
  DEPLOYMENT_ID,
  factsOf,
  NO_SECRETS,
  prepareTemporaryHost,
  type RecordingSender,
  senderThat,
} from '../prepared-host.ts'

const SECRET = 'hunter22'
const ACCEPTED: Delivery = { accepted: true, attempts: 2 }
const REFUSED: Delivery = { accepted: false, attempts: 1, status: 403, error: `no such key: ${SECRET}`, final: true }
const HUB_DOWN: Delivery = { accepted: false, attempts: 4, status: 500, error: 'the hub is down', final: false }
const FAILED = buildEnd(new Date('2026-01-02T03:04:07.678Z'), {
  outcome: 'failed',
  error: { code: 'authentication_failed', message: `the hub says: key ${SECRET} is unknown`, step: null },
})

interface Setting {
  delivery?: Delivery
  address?: string | null
  secret?: string
  /** The run that closes the deployment. */
  runId?: string
  /** Prepares the host before the deployment is closed. */
  prepare?: (layout: Layout) => void
}

interface Closing {
  layout: Layout
  log: CollectedLog
  sender: RecordingSender
  closed: RunResult
}

async function close(t: TestContext, setting: Setting = {}): Promise<Closing> {
  const {
    delivery = ACCEPTED,
    address = 'http://hub greeter',
    secret = SECRET,
    runId = DEPLOYMENT_ID,
    prepare,
  } = setting
  const layout = await prepareTemporaryHost(t)
  prepare?.(layout)
  const [log, sender] = [collectLog(), senderThat(delivery)]
  const record = createDeploymentRecord(factsOf(), [
    { state: 'pending', at: factsOf().started_at },
    { state: 'failed', at: FAILED.completed_at },
  ])
  const secrets = { ...NO_SECRETS, redact: createRedactor([secret]) }
  const host = { ...hostOf(layout, { log, sender, secrets }), run: { id: runId, url: null } }
  return { layout, log, sender, closed: await closeDeployment(host, { record, end: FAILED, address }) }
}

function removeOwnFolder({ own }: Layout): void {
  rmSync(own, { recursive: true })
}

function textsBelow(layout: Layout): string[] {
  return [layout.reports, layout.outbox]
    .flatMap(folder => readdirSync(folder).map(name => join(folder, name)))
    .concat(auditPath(layout))
    .map(path => readFileSync(path, 'utf8'))
}

describe('closeDeployment', () => {
  it('writes one valid local report, 0600', async t => {
    const { layout, closed } = await close(t)
    assert.deepEqual(readdirSync(layout.reports), ['000001-2026-01-02T03-04-05.678Z-greeter.json'])
    assert.equal(statSync(closed.reportPath as string).mode & 0o777, 0o600)
    const report = localReportSchema.parse(JSON.parse(readFileSync(closed.reportPath as string, 'utf8')))
    assert.deepEqual(
      [report.outcome, report.status, report.state, report.duration_ms, report.reported],
      ['failed', 'failed', 'failed', 2000, { accepted: true, attempts: 2, error: null }],
    )
  })

  it('keeps secrets out of every file and off the wire', async t => {
    const { layout, sender } = await close(t, { delivery: REFUSED })
    assert.equal(sender.sent.length, 1)
    for (const text of [...textsBelow(layout), JSON.stringify(sender.sent)]) assert.ok(!text.includes(SECRET), text)
  })

  for (const [error, warning] of [
    ['the hub says', 'The hub did not accept the report of this run, for the same reason that the run failed.'],
    [
      'no such route',
      'The hub did not accept the report of this run (this changes nothing on this host): no such route',
    ],
  ] as const) {
    it(`warns once of a report that is refused with "${error}"`, async t => {
      const { log } = await close(t, { delivery: { ...REFUSED, error } })
      assert.deepEqual(log.lines, [`warning ${warning}`])
    })
  }

  for (const [name, more, verb] of [
    ['was not answered', { status: null }, 'did not confirm'],
    ['could not be sent because the login was refused', { status: null, denied: true }, 'did not accept'],
  ] as const) {
    it(`warns that the hub ${verb} a report that ${name}`, async t => {
      const { log } = await close(t, { delivery: { ...REFUSED, ...more, error: 'why' } })
      assert.deepEqual(log.lines, [
        `warning The hub ${verb} the report of this run (this changes nothing on this host): why`,
      ])
    })
  }

  it('names the interrupted run whose report is refused', async t => {
    const { log } = await close(t, { delivery: { ...REFUSED, error: 'no such route' }, runId: 'another' })
    assert.match(log.lines.join(), /did not accept the report of the interrupted run [0-9a-f-]{36} \(/)
  })

  for (const secret of ['"outcome":', 'null,', 'true', 'failed']) {
    it(`keeps its files readable when a hub gives out ${secret} as a token`, async t => {
      const { layout } = await close(t, { delivery: HUB_DOWN, secret })
      for (const text of textsBelow(layout)) {
        const { report = JSON.parse(text) } = JSON.parse(text)
        assert.equal(report.outcome, 'failed')
      }
    })
  }

  it('appends one audit line, 0600', async t => {
    const prepare = (host: Layout): void => writeFileSync(auditPath(host), 'earlier\n', { mode: 0o600 })
    const { layout } = await close(t, { address: null, prepare })
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

  it('turns an undelivered report into one warning and one file in the outbox, and changes no outcome', async t => {
    const { layout, log, closed } = await close(t, { delivery: HUB_DOWN })
    assert.equal(log.lines.filter(line => line.startsWith('warning')).length, 1)
    assert.equal(readdirSync(layout.outbox).length, 1)
    assert.equal(closed.report.outcome, 'failed')
    assert.deepEqual(closed.report.reported, { accepted: false, attempts: 4, error: 'the hub is down' })
  })

  it('sends nothing when there is no hub to report to', async t => {
    const { layout, sender } = await close(t, { address: null })
    assert.deepEqual([sender.sent, readdirSync(layout.outbox)], [[], []])
  })

  it('keeps a report in the outbox when it belongs to another hub', async t => {
    const { layout, sender } = await close(t, { address: 'http://other greeter' })
    assert.deepEqual(sender.sent, [])
    const [name] = readdirSync(layout.outbox)
    assert.equal(JSON.parse(readFileSync(join(layout.outbox, name as string), 'utf8')).address, 'http://other greeter')
  })

  it('lists in the result, but not in the log, the files that could not be written', async t => {
    const { layout, log, closed } = await close(t, { delivery: HUB_DOWN, prepare: removeOwnFolder })
    assert.equal(log.lines.length, 1)
    assert.ok(!log.lines[0]?.includes('Could not write'), log.lines[0])
    assert.equal(
      closed.unwritten,
      `Could not write the local report, the report in the outbox and the audit line: there is no ${layout.own}.`,
    )
  })

  it('hands over the local report before it sends one to the hub', async t => {
    const layout = await prepareTemporaryHost(t)
    const sender = senderThat(ACCEPTED)
    const known: unknown[] = []
    const host = hostOf(layout, { sender })
    const { reportPath } = await closeDeployment(
      host,
      { record: newRecord(), end: FAILED, address: sender.address },
      closed =>
        known.push([
          closed.reportPath,
          closed.report.reported,
          existsSync(String(closed.reportPath)),
          sender.sent.length,
        ]),
    )
    assert.deepEqual(known, [[reportPath, notSent('not sent'), true, 0]])
  })

  it('reports no failure when everything was written', async t => {
    const { closed } = await close(t)
    assert.equal(closed.unwritten, undefined)
  })

  it('does not throw when no file can be written', async t => {
    const { log, closed, sender } = await close(t, { prepare: removeOwnFolder })
    assert.equal(closed.reportPath, undefined)
    assert.equal(sender.sent.length, 1)
    assert.deepEqual(log.lines, [])
  })
})
