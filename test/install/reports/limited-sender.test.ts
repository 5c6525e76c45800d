import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { limitSender } from '../../../src/install/reports/limited-sender.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import type { ReportSender } from '../../../src/install/reports/report-sender.ts'
import { senderThat } from '../prepared-host.ts'

const REPORT = {} as LocalReport
const LIMITS = { retry: true, timeoutMs: 500 }

describe('limitSender', () => {
  it('sends nothing once the time is over, and says that sending it later may help', async () => {
    const sender = senderThat({ accepted: true, attempts: 1 })
    const delivery = await limitSender(sender, 0).send(REPORT, LIMITS)
    assert.deepEqual([delivery.accepted, 'final' in delivery && delivery.final, sender.sent], [false, false, []])
  })

  it('gives each report the shorter of both timeouts', async () => {
    const timeouts: number[] = []
    const sender: ReportSender = {
      address: 'here',
      async send(_, { timeoutMs }) {
        timeouts.push(timeoutMs)
        return { accepted: true, attempts: 1 }
      },
    }
    await limitSender(sender, 60_000).send(REPORT, LIMITS)
    await limitSender(sender, 400).send(REPORT, LIMITS)
    const [first, second = 0] = timeouts
    assert.equal(first, LIMITS.timeoutMs)
    assert.ok(second > 0 && second <= 400, String(second))
  })
})
