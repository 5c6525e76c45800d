import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { after, before, describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { type ActionResult, type ActionRun, makeWorkspace, runAction, type Workspace } from '../../../local/runner.ts'
import { HANG_LIMIT_MS, sampled, whyLeftToCi } from '../../extent.ts'
import { temporaryDirectory } from '../../folders.ts'
import { type Handler, type LoopbackServer, serve } from '../../net/loopback-server.ts'
import { commandsIn } from '../harness/evidence.ts'
import { openStage, pluginFiles, type Stage } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const KEY = 'key-of-the-operator'

type Row = Record<string, unknown>

function rowOf(host: string, more: Row = {}): Row {
  const times = { started_at: '2026-01-02T03:04:05Z', completed_at: '2026-01-02T03:04:06.789Z' }
  const ids = { id: `id-${host}`, deployer_id: 'alice', kind: 'plugin', slug: 'greeter' }
  const facts = { version: '1.0.0', status: 'success', repo: null, error_message: null, created_at: times.completed_at }
  return { ...ids, host_id: host, ...facts, ...times, ...more }
}

function answering(body: unknown, status = 200): Handler {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  return (_, response) => response.writeHead(status, { 'content-type': 'application/json' }).end(text)
}

async function fleetOf(
  url: string,
  workspace: Workspace,
  inputs: Record<string, string>,
  run: Partial<ActionRun> = {},
) {
  const all = { 'hub-url': url, slug: 'greeter', 'api-key': KEY, ...inputs }
  return await runAction({ workspace, action: 'fleet', inputs: all, ...run })
}

interface Asked {
  readonly result: ActionResult
  readonly server: LoopbackServer
}

/** Runs the fleet action against a hub with these answers. */
async function ask(t: TestContext, handler: Handler, inputs: Record<string, string> = {}): Promise<Asked> {
  const server = await serve(t, handler)
  return { server, result: await fleetOf(server.url, makeWorkspace(temporaryDirectory(t)), inputs) }
}

function outputsOf({ outputs }: ActionResult) {
  const parse = (name: string): never => JSON.parse(outputs[name] ?? '') as never
  const [hosts, versions, outdated] = [parse('hosts'), parse('versions'), parse('outdated')]
  return { hosts: hosts as Row[], versions, outdated, inSync: outputs['in-sync'], code: outputs['error-code'] }
}

describe('the fleet of a reference hub', () => {
  let stage: Stage
  before(async () => {
    stage = await openStage()
    for (const version of ['1.0.0', '1.1.0']) await stage.publish(version, pluginFiles(version))
    for (const host of ['app-1', 'app-2', 'app-10']) await deploy(host, '1.0.0')
    await deploy('app-2', '1.1.0')
    await stage.deploy({ 'project-root': `${stage.root}/app-10`, 'host-id': 'app-10', version: '9.9.9' })
  })
  after(() => stage.close())

  async function deploy(host: string, version: string): Promise<void> {
    const { exitCode, log } = await stage.deploy({ 'project-root': `${stage.root}/${host}`, 'host-id': host, version })
    assert.equal(exitCode, 0, log)
  }

  async function look(inputs: Record<string, string> = {}): Promise<ActionResult> {
    return await fleetOf(stage.hub.url, stage.workspace, { 'api-key': stage.apiKey, ...inputs })
  }

  it("is listed with the version that each host runs, even if the host's last deployment failed", async () => {
    const result = await look()
    assert.equal(result.exitCode, 0, result.log)
    const { hosts, versions, outdated, inSync, code } = outputsOf(result)
    assert.deepEqual(
      hosts.map(host => [host['host_id'], host['version'], host['status'], host['error_message'] === null]),
      [
        ['app-1', '1.0.0', 'success', true],
        ['app-2', '1.1.0', 'success', true],
        ['app-10', '1.0.0', 'failed', false],
      ],
    )
    assert.deepEqual(versions, { '1.1.0': ['app-2'], '1.0.0': ['app-1', 'app-10'] })
    assert.deepEqual([outdated, inSync, code], [['app-1', 'app-10'], 'false', ''])
    assert.match(result.summary, /^### ⚠️ 1 of 3 hosts is known to run greeter 1\.1\.0\n/)
  })

  it('fails the step, which names the hosts that do not run the expected version', async () => {
    const result = await look({ 'expect-version': 'v1.1.0', 'expect-hosts': 'app-1, app-2\napp-3' })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'fleet_out_of_sync'], result.log)
    const [error = '', ...others] = commandsIn(result.log, 'error')
    assert.match(
      error,
      /greeter v1\.1\.0 is known to run on 1 of 3 hosts, but not on app-1 \(1\.0\.0\), app-3 \(never reported\)/,
    )
    assert.deepEqual(others, [])
    assert.deepEqual(outputsOf(result).outdated, ['app-1', 'app-3'])
    assert.match(result.summary, /^### ❌ 1 of 3 hosts is known to run greeter v1\.1\.0\n/)
    assert.match(result.summary, /Not in expect-hosts: app-10\./)
  })

  it('is in sync if each expected host runs the expected version, whatever was attempted there since', async () => {
    const result = await look({ 'expect-version': '1.0.0', 'expect-hosts': 'app-1,app-10' })
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual([result.outputs['in-sync'], result.outputs['outdated']], ['true', '[]'])
    assert.match(result.summary, /^### ✅ Both hosts run greeter 1\.0\.0\n/)
  })

  it('is awaited until the last host has the version, and in the meantime the log names the missing hosts', {
    skip: ONLY_IN_CI,
  }, async () => {
    const inputs = { 'api-key': stage.apiKey, 'expect-version': '1.1.0', 'expect-hosts': 'app-1,app-2' }
    let log = ''
    const waited = fleetOf(
      stage.hub.url,
      stage.workspace,
      { ...inputs, 'wait-seconds': '600' },
      { onLog: text => (log += text) },
    )
    while (!log.includes('waiting for app-1')) await setTimeout(20)
    await deploy('app-1', '1.1.0')
    const { exitCode, outputs } = await waited
    assert.deepEqual([exitCode, outputs['in-sync']], [0, 'true'], log)
    assert.match(log, /1 of 2 hosts is known to run 1\.1\.0; waiting for app-1 \(1\.0\.0\) \(\d+ s left\)\./)
  })

  it('is refused to a wrong key, which leaves the outputs that list hosts empty', async () => {
    const result = await look({ 'api-key': 'wrong', 'expect-version': '1.1.0' })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'authentication_failed'])
    const { hosts, versions, outdated, 'in-sync': inSync } = result.outputs
    assert.deepEqual([hosts, versions, outdated, inSync], ['', '', '', 'false'])
    assert.match(result.summary, /^### ❌ What runs on the hosts of greeter is not known\n/)
  })

  it('has no host for a plugin that was never deployed, so the step fails', async () => {
    const result = await look({ slug: 'unknown', 'expect-version': '1.0.0' })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'fleet_out_of_sync'])
    assert.match(commandsIn(result.log, 'error')[0] ?? '', /knows no host of plugin unknown/)
  })
})

describe('the fleet action', () => {
  it('sends the key, and the token if there is one, below deployments-url', async t => {
    const elsewhere = await serve(t, answering([rowOf('app-1')]))
    const inputs = { 'deployments-url': `${elsewhere.url}/base/`, 'access-token': 'token-of-the-hub', kind: 'service' }
    const { server } = await ask(t, answering([]), inputs)
    const sent = ({ url, headers }: IncomingMessage) => [url, headers['x-api-key'], headers.authorization]
    assert.deepEqual(elsewhere.requests.map(sent), [
      ['/base/deployments/service/greeter/hosts', KEY, 'Bearer token-of-the-hub'],
    ])
    assert.equal(server.requests.length, 0)
  })

  for (const [name, inputs, code, words] of sampled(
    [
      ['a missing key and token', { 'api-key': '' }, 'missing_input', 'api-key or access-token is required'],
      ['an empty slug', { slug: '' }, 'missing_input', 'slug is required'],
      ['latest as the expected version', { 'expect-version': 'latest' }, 'invalid_input', 'expect-version must be'],
      ['a negative wait', { 'wait-seconds': '-1' }, 'invalid_input', 'wait-seconds must be'],
      ['an age of 0', { 'max-age-hours': '0' }, 'invalid_input', 'max-age-hours must be'],
      ['an empty list', { 'expect-hosts': ' , ' }, 'invalid_input', 'expect-hosts must list'],
      ['a list in JSON', { 'expect-hosts': '["app-1"]' }, 'invalid_input', 'expect-hosts must list items one per line'],
      ['a hub without https', { 'hub-url': 'http://hub.example' }, 'insecure_url', 'https'],
    ] as const,
    3,
  ))
    it(`refuses ${name}, and sends no request`, async t => {
      const { server, result } = await ask(t, answering([]), inputs)
      assert.deepEqual(
        [result.exitCode, result.outputs['error-code'], server.requests.length],
        [1, code, 0],
        result.log,
      )
      assert.ok(commandsIn(result.log, 'error')[0]?.includes(words), result.log)
      assert.equal(result.outputs['in-sync'], 'false')
    })

  it('ends when it is cancelled while it waits', { timeout: HANG_LIMIT_MS }, async t => {
    const server = await serve(t, answering([rowOf('app-1')]))
    const inputs = { 'expect-version': '2.0.0', 'wait-seconds': '3600' }
    let pid = 0
    const result = await fleetOf(server.url, makeWorkspace(temporaryDirectory(t)), inputs, {
      onStart: started => (pid = started),
      onLog: text => {
        if (text.includes('waiting for app-1')) process.kill(pid, 'SIGINT')
      },
    })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'cancelled'], result.log)
  })

  for (const [name, handler, code] of sampled(
    [
      ['with an HTML page', answering('<html>'), 'bad_response'],
      ['with an object', answering({ hosts: [] }), 'bad_response'],
      ['with over 16 MiB', answering(`[${' '.repeat(16 * 1024 * 1024)}]`), 'bad_response'],
      ['with millions of lists', answering(`[${'[],'.repeat(1_000_001)}0]`), 'bad_response'],
      ['401', answering({ error: 'who?' }, 401), 'authentication_failed'],
      ['403', answering({ detail: 'not yours' }, 403), 'authentication_failed'],
      ['404', answering({ error: 'no route' }, 404), 'not_found'],
      ['418', answering('teapot', 418), 'artifact_unavailable'],
    ] as const,
    3,
  ))
    it(`fails closed, with one sentence, if the hub answers ${name}`, async t => {
      const { result, server } = await ask(t, handler, { 'expect-version': '1.0.0', 'expect-hosts': 'app-1' })
      assert.deepEqual(
        [result.exitCode, result.outputs['error-code'], server.requests.length],
        [1, code, 1],
        result.log,
      )
      assert.equal(commandsIn(result.log, 'error').length, 1)
      assert.deepEqual([result.outputs['in-sync'], result.outputs['outdated']], ['false', ''])
    })

  it('names the base URL, and the input that sets it, if the hub does not have the route', async t => {
    const { result, server } = await ask(t, answering({ error: 'no route' }, 404), {})
    assert.match(
      result.log,
      new RegExp(`from ${server.url}: .*404.* Check slug, kind and hub-url, or set deployments-url\\.`),
    )
  })

  for (const [name, body, status] of [
    ['in a refusal', (key: string) => ({ error: `the key ${key} is wrong` }), 403],
    [
      'in every field of a report',
      (key: string) => [
        rowOf(key, { version: key }),
        rowOf('app-1', { status: 'failed', running_version: key, version: key, error_message: `of ${key}` }),
      ],
      200,
    ],
  ] as const)
    it(`never writes the key that the hub sends back ${name}`, async t => {
      const key = 'hub_key_of_the_operator'
      const inputs = { 'api-key': key, 'expect-version': '1.0.0' }
      const { result } = await ask(t, answering(body(key), status), inputs)
      assert.equal(result.exitCode, 1)
      const log = result.log.split('\n').filter(line => !line.startsWith('::add-mask::'))
      const written = [log.join('\n'), result.summary, ...Object.values(result.outputs)].join('\n')
      for (const text of [key, key.replaceAll('_', '&#95;')]) assert.ok(!written.includes(text), written)
    })

  it('does not send the key to another origin that the hub redirects to', async t => {
    const elsewhere = await serve(t, answering({ error: KEY }, 401))
    const redirect: Handler = (_, response) => response.writeHead(307, { location: `${elsewhere.url}/hosts` }).end()
    const { result } = await ask(t, redirect, { 'expect-version': '1.0.0', 'access-token': 'token-of-the-hub' })
    assert.equal(result.outputs['error-code'], 'authentication_failed')
    const { headers } = elsewhere.requests[0] ?? {}
    assert.deepEqual([headers?.['x-api-key'], headers?.authorization], [undefined, undefined])
  })

  it('limits the outputs and the summary of 10,000 hosts, and leaves out hosts in sync first', {
    skip: ONLY_IN_CI,
  }, async t => {
    const error = `|<b>::error::${'x'.repeat(1000)}`
    const failed = { status: 'failed', version: '2.0.0', error_message: error }
    const rows = Array.from({ length: 10_000 }, (_, index) => rowOf(`app-${index}`, index % 100 === 7 ? failed : {}))
    const { result } = await ask(t, answering(rows), { 'expect-version': '1.0.0' })
    assert.equal(result.outputs['error-code'], 'fleet_out_of_sync')
    const { hosts, outdated } = outputsOf(result)
    assert.ok(hosts.length > 1000 && (result.outputs['hosts'] ?? '').length <= 200_000)
    const listed = hosts.filter(({ status }) => status === 'failed').map(host => host['host_id'])
    assert.deepEqual(
      [listed, outdated],
      [outdated, rows.filter(row => row['status'] === 'failed').map(row => row['host_id'])],
    )
    assert.match(result.log, /The output hosts is truncated: it has no room for [\d,]+ more hosts/)
    assert.ok(result.summary.length < 200_000, String(result.summary.length))
    assert.match(result.summary, /And 9,800 more hosts\./)
    assert.doesNotMatch(result.summary, /<b>/)
    assert.equal(commandsIn(result.log, 'error').length, 1)
  })

  it('counts the versions whose hosts the log leaves out', { skip: ONLY_IN_CI }, async t => {
    const rows = Array.from({ length: 150 }, (_, index) => rowOf(`app-${index}`, { version: `1.0.${index}` }))
    const { result } = await ask(t, answering(rows))
    assert.equal(result.exitCode, 0, result.log)
    assert.match(result.log, /^and 50 more versions$/m)
  })
})
