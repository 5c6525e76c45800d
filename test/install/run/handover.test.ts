import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { readInstalled, recordInstalled } from '../../../src/install/host/record.ts'
import { writeLocalReport } from '../../../src/install/reports/local-report.ts'
import { checkRestored, writeHandover } from '../../../src/install/run/handover.ts'
import type { RestoredCheck } from '../../../src/install/services/health.ts'
import { hostOf } from '../prepared-deployment.ts'
import { collectLog, factsOf, prepareTemporaryHost, reportOf, rowOf } from '../prepared-host.ts'

const ROLLBACK = { restored: true, problems: [], verified: true, healthy: null }

function checkOf(id: string): RestoredCheck {
  return { id, service: null, check: null, timeout_seconds: 1, retries: 0, previous_version: '1.0.0' }
}

/** A host with greeter, the text for its post step, and the post step's host config, whose check is this command. */
async function openHandover(t: TestContext, command: string) {
  const layout = await prepareTemporaryHost(t)
  await recordInstalled(layout, { rows: [rowOf()], removed: [] })
  const check = JSON.stringify(['/bin/sh', '-c', command])
  const hostConfig = {
    path: 'host-config.yaml',
    text: `version: 1\nplugins: {greeter: {healthcheck: {command: ${check}}}}`,
  }
  return { layout, host: hostOf(layout, { hostConfig }), text: writeHandover(layout, factsOf(), [checkOf('greeter')]) }
}

describe('the restored parts that a cancelled run leaves to its post step to check', () => {
  it('fit into an environment variable, and leave the health unknown for parts that do not fit', async t => {
    const { layout, host } = await openHandover(t, 'true')
    const path = await writeLocalReport(host, reportOf({ outcome: 'rolled_back', rollback: ROLLBACK }))
    const checks = Array.from({ length: 9000 }, (_, index) => checkOf(`part-${index}`))
    const text = writeHandover(layout, factsOf(), [checkOf('greeter'), ...checks])
    assert.ok(Buffer.byteLength(text) < 128 * 1024)
    const { parts, left_out: left } = JSON.parse(text)
    assert.equal(parts.length + left, 9001)
    assert.equal(await checkRestored(host, text), undefined)
    assert.equal(JSON.parse(readFileSync(path, 'utf8')).rollback.healthy, null)
  })

  it('are named without their services, their checks or anything else to execute', async t => {
    const { text } = await openHandover(t, 'exit 3')
    assert.deepEqual(JSON.parse(text).parts, ['greeter'])
    assert.doesNotMatch(text, /sh|exit/)
  })

  it('are named as unhealthy even when the local report is gone', async t => {
    const { host, text } = await openHandover(t, 'echo "no database"; exit 3')
    const found = await checkRestored(host, text)
    assert.match(found?.sentence ?? '', /no database/)
    assert.equal(found?.found, undefined)
  })

  it('are not checked if another version has been installed by then', async t => {
    const { layout, host, text } = await openHandover(t, 'exit 3')
    await recordInstalled(layout, { rows: [rowOf({ version: '9.0.0' })], removed: [] })
    assert.equal(await checkRestored(host, text), undefined)
    assert.equal(readInstalled(layout)[0]?.service_pending, undefined)
  })

  for (const [what, hostConfig] of Object.entries({
    'is gone': undefined,
    'cannot be used': { path: 'host-config.yaml', text: 'version: 2' },
    'has nothing for them': { path: 'host-config.yaml', text: 'version: 1' },
  })) {
    it(`are left to the next run if the host config ${what}`, async t => {
      const { layout, text } = await openHandover(t, 'exit 3')
      const log = collectLog()
      assert.equal(await checkRestored(hostOf(layout, { hostConfig, log }), text), undefined)
      assert.match(log.lines.join('\n'), /^warning The health of greeter was not checked after the rollback, because /m)
      assert.equal(readInstalled(layout)[0]?.service_pending, true)
    })
  }

  for (const [what, change] of Object.entries({
    'not JSON': () => '{',
    'of another shape': (text: string) => text.replace('"parts"', '"checks"'),
    'for a malformed id': (text: string) => text.replace(/"deployment_id":"[^"]*"/, '"deployment_id":"../../x"'),
  })) {
    it(`are refused when they are ${what}`, async t => {
      const { host, text } = await openHandover(t, 'exit 3')
      await assert.rejects(checkRestored(host, change(text)), { name: /^(?:SyntaxError|\$?ZodError)$/ })
    })
  }
})
