import assert from 'node:assert/strict'
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, beforeEach, describe, it } from 'node:test'
import { listProjectKeys } from '../../../hub/project/keys.ts'
import { startHub } from '../../../hub/server.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { assertNothingStrays, commandsIn, listOwn, readLocalReport } from '../harness/evidence.ts'
import { acceptedProjectReports, assertKeptSecret, runningParts } from '../harness/project-evidence.ts'
import { openProjectStage, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import { type Answer, answerJson } from '../harness/untrusted-hub.ts'
import { answersOf, goodOffer, serveUntrustedProjectHub, TOKEN } from '../harness/untrusted-project-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

const HOUR_MS = 60 * 60 * 1000

let stage: ProjectStage
before(async () => {
  stage = await openProjectStage()
  await stage.publish('1.0.0', projectFiles('1.0.0'))
})
beforeEach(() => {
  for (const name of readdirSync(stage.root)) rmSync(join(stage.root, name), { recursive: true })
})
after(() => stage.close())

function assertStays(result: ActionResult): void {
  const { outcome, changed, reported } = result.outputs
  assert.deepEqual([outcome, changed, reported], ['success', 'true', 'false'], result.log)
  assert.deepEqual(runningParts(stage), ['2.0.0', '2.0.0', '2.0.0'])
  assert.equal(readLocalReport(result).outcome, 'success')
  assert.equal(listOwn(stage, 'outbox').length, 1)
}

describe('a report that the hub refuses', () => {
  for (const [status, error] of sampled(
    [
      [403, 'not your project'],
      [422, 'no thanks'],
      [500, 'no store'],
    ] as const,
    2,
  )) {
    it(`with ${status} fails the step, says so and rolls nothing back`, async t => {
      let report: Answer = answerJson(status, { error })
      const answers = answersOf(stage, goodOffer(stage), { report: (response, request) => report(response, request) })
      const hub = await serveUntrustedProjectHub(t, answers)
      const result = await stage.deploy({ 'hub-url': hub.url })
      assert.equal(result.exitCode, 1)
      assert.equal(result.outputs['error-code'], 'report_refused')
      assertStays(result)
      const [annotation, ...more] = commandsIn(result.log, 'error')
      assert.match(annotation ?? '', new RegExp(`2\\.0\\.0 is installed and stays.*${status} \\(${error}\\)`))
      assert.doesNotMatch(annotation ?? '', /\.\./)
      assert.deepEqual(more, [])
      report = answerJson(201, {})
      const next = await stage.deploy({ 'hub-url': hub.url })
      assert.deepEqual([next.exitCode, next.outputs['changed'], next.outputs['reported']], [0, 'false', 'true'])
      const ids = hub.callsTo('report').map(({ body }) => (body as Record<string, string>)['deployment_id'])
      assert.deepEqual(ids.slice(-2), [result.outputs['deployment-id'], next.outputs['deployment-id']])
      assertNothingStrays(stage.root)
    })
  }

  it('is annotated under its own code and without a stack', async t => {
    const report = answerJson(403, { error: 'not your project' })
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, goodOffer(stage), { report }))
    const { log } = await stage.deploy({ 'hub-url': hub.url })
    assert.match(commandsIn(log, 'error').join(), /title=report_refused/)
    assert.doesNotMatch(log, / at \S+ \(file:/)
  })

  it('does not hide why the deployment failed', async t => {
    const answers = answersOf(stage, goodOffer(stage), {
      authorize: answerJson(403, { error: 'revoked' }),
      report: answerJson(403, { error: 'not your project' }),
    })
    const hub = await serveUntrustedProjectHub(t, answers)
    const { exitCode, outputs, log } = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([exitCode, outputs['outcome'], outputs['error-code']], [1, 'failed', 'authentication_failed'])
    assert.equal(commandsIn(log, 'error').length, 1)
  })
})

describe('a report that does not reach the hub', () => {
  it('causes a warning, and the next run sends it', { skip: ONLY_IN_CI }, async t => {
    let isUp = false
    const report: Answer = response => {
      if (isUp) response.writeHead(201).end('{}')
      else response.destroy()
    }
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, goodOffer(stage), { report }))
    const result = await stage.deploy({ 'hub-url': hub.url })
    assert.equal(result.exitCode, 0)
    assert.deepEqual([result.outputs['error-code'], commandsIn(result.log, 'error').length], ['', 0])
    assert.equal(commandsIn(result.log, 'warning').length, 1)
    assertStays(result)
    isUp = true
    const next = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([next.exitCode, next.outputs['reported']], [0, 'true'], next.log)
    assertNothingStrays(stage.root)
    assertKeptSecret(stage, [result.log, next.log], [], [TOKEN])
  })
})

describe('an access token that expires', () => {
  it('before the report is replaced, and the report is accepted', async t => {
    let refusals = 0
    const report: Answer = (response, request) => {
      const answer = refusals++ === 0 ? answerJson(401, { error: 'expired' }) : answerJson(201, {})
      answer(response, request)
    }
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, goodOffer(stage), { report }))
    const result = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([result.exitCode, result.outputs['reported']], [0, 'true'], result.log)
    assert.deepEqual(hub.asked().slice(-4), ['authorize', 'report', 'auth', 'report'])
  })

  it('by the clock of the hub is replaced', async t => {
    const lastAuthorized = () =>
      listProjectKeys(stage.store).find(({ purpose }) => purpose === 'credential')?.last_used_at
    const before = lastAuthorized()
    const now = () => Date.now() + (lastAuthorized() === before ? 0 : 2 * HOUR_MS)
    const hub = await startHub({ dataDir: stage.dataDir, now })
    t.after(() => hub.close())
    const result = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([result.exitCode, result.outputs['reported']], [0, 'true'], result.log)
    assert.equal(readLocalReport(result).reported.attempts, 2)
    assert.equal(acceptedProjectReports(stage).at(-1)?.deployment_id, result.outputs['deployment-id'])
  })

  it('together with its dev key leaves the report refused', async t => {
    let logins = 0
    const auth: Answer = (response, request) => {
      const answer = logins++ === 0 ? answerJson(200, { access_token: TOKEN }) : answerJson(401, { error: 'revoked' })
      answer(response, request)
    }
    const report = answerJson(401, { error: 'expired' })
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, goodOffer(stage), { auth, report }))
    const result = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'report_refused'], result.log)
    assertStays(result)
  })
})

describe('a login that the hub refuses', () => {
  for (const [status, code] of sampled(
    [
      [401, 'authentication_failed'],
      [403, 'authentication_failed'],
      [500, 'artifact_unavailable'],
    ] as const,
    1,
  )) {
    it(`with ${status} ends the run, and its report waits in the outbox`, async t => {
      const auth = answerJson(status, { error: 'no such key' })
      const hub = await serveUntrustedProjectHub(t, answersOf(stage, goodOffer(stage), { auth }))
      const result = await stage.deploy({ 'hub-url': hub.url })
      assert.deepEqual([result.exitCode, result.outputs['error-code'], result.outputs['reported']], [1, code, 'false'])
      assert.match(commandsIn(result.log, 'error').join(), new RegExp(`${status}.*no such key`))
      assert.ok(hub.asked().every(route => route === 'auth'))
      assert.equal(listOwn(stage, 'outbox').length, 1)
    })
  }
})
