import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { describe, it, type TestContext } from 'node:test'
import { bodyBytes, startCuttingProxy } from '../../net/cutting-proxy.ts'
import { listHost, readLocalReport } from '../harness/evidence.ts'
import { onceInLog } from '../harness/processes.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openStage, pluginFiles } from '../harness/stage.ts'

const MEBIBYTE = 1024 * 1024
/** Hexadecimal text, of which at most a half can be compressed away. */
const NOISE = randomBytes(5 * MEBIBYTE).toString('hex')
/** More breaks than retries. Only an artifact needs as many bytes. */
const CUTS = Array.from({ length: 100 }, () => 1.25 * MEBIBYTE)

const STAGES = {
  async deploy(t: TestContext) {
    const stage = await openStage()
    t.after(() => stage.close())
    await stage.publish('1.0.0', pluginFiles('1.0.0', { noise: NOISE }))
    return stage
  },
  async project(t: TestContext) {
    const stage = await openProjectStage()
    t.after(() => stage.close())
    await stage.publish('1.0.0', projectFiles('1.0.0', { 'plugins/till/noise': NOISE }))
    return stage
  },
}

describe('a connection to the hub that keeps breaking', () => {
  for (const [action, open] of Object.entries(STAGES)) {
    it(`delivers each byte of an artifact once to ${action}`, async t => {
      const stage = await open(t)
      const proxy = await startCuttingProxy(t, Number(new URL(stage.hub.url).port), CUTS)
      const { exitCode, log } = await stage.deploy({ 'hub-url': proxy.url })
      assert.equal(exitCode, 0, log)
      const broken = proxy.passed.filter(({ bytes }) => bytes >= (CUTS[0] ?? 0)).length
      assert.ok(broken >= 4, `${broken} connections broke`)
      const direct = await startCuttingProxy(t, Number(new URL(stage.hub.url).port), [])
      assert.equal((await stage.deploy({ 'hub-url': direct.url, redeploy: 'true' })).exitCode, 0)
      // The two runs differ by a few bytes of JSON and by the plugin's detail route.
      assert.ok(Math.abs(bodyBytes(proxy) - bodyBytes(direct)) < 1000, `${bodyBytes(proxy)}, ${bodyBytes(direct)}`)
    })
  }

  it('leaves the host as it was if the run is cancelled after a break', async t => {
    const stage = await STAGES.deploy(t)
    const proxy = await startCuttingProxy(t, Number(new URL(stage.hub.url).port), CUTS)
    const before = listHost(stage.root)
    const cancel = onceInLog('Attempt 2 of ', pid => process.kill(pid, 'SIGINT'))
    const result = await stage.deploy({ 'hub-url': proxy.url, 'deployments-url': stage.hub.url }, cancel)
    assert.equal(result.outputs['error-code'], 'cancelled', result.log)
    assert.equal(readLocalReport(result).outcome, 'failed')
    assert.deepEqual(listHost(stage.root), before)
  })
})
