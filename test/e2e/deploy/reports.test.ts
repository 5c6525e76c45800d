import assert from 'node:assert/strict'
import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { createKey } from '../../../hub/access.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { CLOSED_PORT } from '../../net/loopback-server.ts'
import { acceptedReports, commandsIn, listOwn, readLocalReport } from '../harness/evidence.ts'
import { openStage, pluginFiles, type Stage } from '../harness/stage.ts'
import { type Answer, answerJson, redirectTo, serveUntrustedHub, switchProtocols } from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
})
afterEach(() => stage.close())

const UTC_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/

describe('the local report', () => {
  it('has exactly the fields of its contract, in a private file', async () => {
    const { outputs } = await stage.deploy()
    const path = outputs['report-path'] ?? ''
    assert.equal(statSync(path).mode & 0o777, 0o600)
    assert.match(path, /\/\.hub-deploy\/reports\/\d{6}-\d{4}-[^/]*-greeter\.json$/)
    const { started_at, completed_at, duration_ms, states, steps, ...report } = JSON.parse(readFileSync(path, 'utf8'))
    assert.match(started_at, UTC_TIME)
    assert.match(completed_at, UTC_TIME)
    assert.ok(completed_at >= started_at && duration_ms === Number(outputs['duration-ms']))
    assert.deepEqual(
      states.map(({ state, at }: Record<string, string>) => [state, UTC_TIME.test(at ?? '')]),
      [
        'pending',
        'fetching',
        'verifying_signature',
        'extracting',
        'loading_plan',
        'resolving_sequence',
        'installing',
        'healthchecking',
        'succeeded',
      ].map(state => [state, true]),
    )
    assert.deepEqual(
      steps.map(({ duration_ms: ms, ...step }: Record<string, unknown>) => ({ ...step, timed: typeof ms })),
      [
        { id: 'prepare', action: 'prepare', status: 'done', error: null, timed: 'number' },
        { id: 'files', action: 'install_plugin', status: 'done', error: null, timed: 'number' },
      ],
    )
    assert.deepEqual(report, {
      schema: 1,
      deployment_id: outputs['deployment-id'],
      contract: 'marketplace',
      kind: 'plugin',
      slug: 'greeter',
      id: 'greeter',
      requested_version: 'latest',
      version: '1.0.0',
      version_source: 'plugin.yaml',
      previous_version: null,
      running_version: '1.0.0',
      artifact_sha256: outputs['artifact-sha256'],
      artifact_size: report.artifact_size,
      repo: null,
      drift: [],
      host_id: 'host-1',
      status: 'success',
      outcome: 'success',
      state: 'succeeded',
      changed: true,
      error: null,
      rollback: null,
      reported: { accepted: true, attempts: 1, error: null },
      run: {
        workflow: 'Deploy',
        run_id: '1001',
        run_attempt: '1',
        job: 'deploy',
        actor: 'operator',
        url: 'https://code-host.example/example/operations/actions/runs/1001',
      },
    })
    assert.ok(report.artifact_size > 0)
  })

  it('is followed by one line in the audit log, to which later runs only append', async () => {
    const audit = () => readFileSync(join(stage.root, '.hub-deploy/audit.jsonl'), 'utf8')
    await stage.deploy()
    const first = audit()
    await stage.deploy({ version: '9.9.9' })
    assert.ok(audit().startsWith(first))
    const lines = audit()
      .trimEnd()
      .split('\n')
      .map(line => JSON.parse(line))
    assert.deepEqual(
      lines.map(line => [line.version, line.outcome, line.error_code]),
      [
        ['1.0.0', 'success', null],
        ['9.9.9', 'failed', 'not_found'],
      ],
    )
    assert.equal(listOwn(stage, 'reports').length, 2)
  })
})

describe('the report to the hub', () => {
  it('appears in the fleet view, under the name of the machine by default', async () => {
    await stage.deploy({ 'host-id': '' })
    const answer = await fetch(`${stage.hub.url}/deployments/plugin/greeter/hosts`, {
      headers: { 'x-api-key': stage.apiKey },
    })
    const hosts = (await answer.json()) as Record<string, unknown>[]
    assert.deepEqual(
      hosts.map(({ host_id, version, status }) => [host_id, version, status]),
      [[hostname(), '1.0.0', 'success']],
    )
  })

  it('has exactly the fields of the contract', async t => {
    const hub = await serveUntrustedHub(t)
    await stage.deploy({ 'hub-url': hub.url })
    const [report] = hub.reports as Record<string, unknown>[]
    const { started_at, completed_at, ...rest } = report ?? {}
    assert.deepEqual([UTC_TIME.test(String(started_at)), UTC_TIME.test(String(completed_at))], [true, true])
    assert.deepEqual(rest, {
      kind: 'plugin',
      slug: 'greeter',
      version: '2.0.0',
      status: 'success',
      host_id: 'host-1',
      repo: null,
      error_message: null,
    })
    assert.equal(hub.requestsFor('report')[0]?.headers['x-api-key'], stage.apiKey)
  })

  it('carries the key, as does the request for the artifact, but not the request for the details', async t => {
    const hub = await serveUntrustedHub(t)
    await stage.deploy({ 'hub-url': hub.url })
    assert.equal(hub.requestsFor('detail')[0]?.headers['x-api-key'], undefined)
    assert.equal(hub.requestsFor('artifact')[0]?.headers['x-api-key'], stage.apiKey)
  })

  const refusing: Record<string, Answer> = {
    'refuses it': answerJson(422, { error: 'no thanks' }),
    'no longer knows the key': answerJson(401, { detail: 'expired' }),
    'answers with a page': response => response.writeHead(404, { 'content-type': 'text/html' }).end('<h1>Nothing</h1>'),
    'redirects it': redirectTo('/elsewhere', 307),
    'hangs up': response => response.destroy(),
    'switches to another protocol': switchProtocols,
  }
  for (const [name, report] of sampled(Object.entries(refusing), 2)) {
    it(`does not change the outcome when the hub ${name}, and waits in the outbox`, async t => {
      const hub = await serveUntrustedHub(t, { report })
      const result = await stage.deploy({ 'hub-url': hub.url })
      const { outputs } = result
      assert.deepEqual([result.exitCode, outputs['outcome'], outputs['reported']], [0, 'success', 'false'])
      assert.equal(commandsIn(result.log, 'warning').length, 1)
      assert.equal(commandsIn(result.log, 'error').length, 0)
      assert.equal(listOwn(stage, 'outbox').length, 1)
      const { reported } = readLocalReport(result)
      assert.equal(reported.accepted, false)
      assert.ok(reported.error !== null && reported.error.length > 0)
    })
  }

  it('is given up when the hub never answers, and waits in the outbox', { skip: ONLY_IN_CI }, async t => {
    const hub = await serveUntrustedHub(t, { report: () => {} })
    const result = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([result.exitCode, result.outputs['outcome'], result.outputs['reported']], [0, 'success', 'false'])
    assert.equal(listOwn(stage, 'outbox').length, 1)
  })
})

describe('a report in the outbox', () => {
  it('is sent once by the next run, before the report of that run', async t => {
    let report = answerJson(422, {})
    const hub = await serveUntrustedHub(t, { report: (response, request) => report(response, request) })
    const first = await stage.deploy({ 'hub-url': hub.url })
    report = answerJson(201, {})
    await stage.deploy({ 'hub-url': hub.url })
    await stage.deploy({ 'hub-url': hub.url })
    const started = (hub.reports as Record<string, string>[]).map(body => body['started_at'])
    assert.equal(started.length, 4)
    assert.deepEqual(started.slice(0, 2), [readLocalReport(first).started_at, readLocalReport(first).started_at])
    assert.equal(new Set(started).size, 3)
    assert.deepEqual(listOwn(stage, 'outbox'), [])
  })

  it('stays there while runs report to another hub', { skip: ONLY_IN_CI }, async () => {
    const url = `http://127.0.0.1:${CLOSED_PORT}`
    const first = await stage.deploy({ 'deployments-url': url })
    assert.deepEqual([first.exitCode, first.outputs['reported']], [0, 'false'])
    await stage.deploy()
    assert.equal(acceptedReports(stage).length, 1)
    assert.equal(listOwn(stage, 'outbox').length, 1)
  })

  it('of a run whose key was refused waits for a key that the hub accepts', async () => {
    const { key } = createKey(stage.store, { name: 'other', kind: 'plugin', slug: 'clock' })
    const refused = [await stage.deploy({ 'api-key': key }), await stage.deploy({ 'api-key': key })]
    for (const { outputs } of refused) assert.equal(outputs['error-code'], 'authentication_failed')
    assert.match(commandsIn(refused[1]?.log ?? '', 'warning').join(), /403 \(.*\)\. One report waits in .*outbox/)
    assert.equal((await stage.deploy()).exitCode, 0)
    const [first, second, third] = acceptedReports(stage)
    assert.deepEqual([first?.status, second?.status, third?.status], ['failed', 'failed', 'success'])
    assert.deepEqual(
      [first?.started_at, second?.started_at],
      refused.map(result => readLocalReport(result).started_at),
    )
    assert.deepEqual(listOwn(stage, 'outbox'), [])
  })

  it('that is damaged does no harm', async () => {
    await stage.deploy()
    writeFileSync(join(stage.root, '.hub-deploy/outbox/2026-garbage.json'), '{"schema": 1')
    const result = await stage.deploy()
    assert.deepEqual([result.exitCode, result.outputs['reported']], [0, 'true'])
    assert.equal(commandsIn(result.log, 'warning').length, 1)
  })
})
