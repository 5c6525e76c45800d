import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { type FleetRequest, watchFleet } from '../../src/marketplace/fleet.ts'
import { createSteppedClock } from '../clocks.ts'
import { NOW, rowOf, SUBJECT } from '../fleet/host-reports.ts'
import { collectLog } from '../install/prepared-host.ts'
import { type Handler, makeCertificate, serve, serveTls } from '../net/loopback-server.ts'
import { createManualTimers, createTestedWire } from '../net/tested-wire.ts'

const certificate = makeCertificate()
const [OLD, NEW] = [rowOf('app-1'), rowOf('app-1', { version: '2.0.0' })]

function answer(body: unknown, status = 200): Handler {
  return (_, response) => response.writeHead(status).end(JSON.stringify(body))
}

/** The nth request gets the nth answer. Once there are no more answers, every request gets the last one. */
function inTurn(...handlers: readonly [Handler, ...Handler[]]): Handler {
  return (request, response, nth) => (handlers[nth - 1] ?? (handlers.at(-1) as Handler))(request, response, nth)
}

/** Watches a fleet on a hub that answers with `handler`. */
async function watch(t: TestContext, handler: Handler, more: Partial<FleetRequest> = {}) {
  const server = await serve(t, handler)
  return { ...(await watchServer(server.url, more)), requests: server.requests.length }
}

/** Watches a fleet on a hub. The clock advances only when the watch sleeps. */
async function watchServer(
  url: string,
  more: Partial<FleetRequest>,
  credentials: Partial<FleetRequest['access']> = {},
  wire = createTestedWire(),
) {
  const clock = createSteppedClock()
  const log = collectLog()
  const waits: number[] = []
  const sleep: typeof clock.sleep = async (ms, signal) => {
    waits.push(ms)
    await clock.sleep(ms, signal)
  }
  const access = {
    ...SUBJECT,
    bases: { hub: url, deployments: url },
    apiKey: 'key',
    accessToken: undefined,
    ...credentials,
  }
  const question = {
    expectVersion: '2.0.0',
    expectHosts: undefined,
    maxAgeMs: undefined,
    stoppedAt: undefined,
    waitMs: 100_000,
  }
  const tools = {
    wire,
    log,
    redact: (text: string) => text,
    signal: new AbortController().signal,
    now: () => NOW,
    clock: { ...clock, sleep },
  }
  const seen = await watchFleet({ access, ...question, ...more }, tools)
  return { ...seen, waits, lines: log.lines }
}

describe('watchFleet', () => {
  it('asks until every host runs the version, and waits at most 15 s each time', async t => {
    const old = answer([OLD])
    const { fleet, waits, error } = await watch(t, inTurn(old, old, old, old, old, old, answer([NEW])))
    assert.deepEqual([fleet?.inSync, error, waits], [true, undefined, [2000, 4000, 8000, 15_000, 15_000, 15_000]])
  })

  it('asks one last time when the time is up, then stops', async t => {
    const { fleet, waits, requests } = await watch(t, answer([OLD]), { waitMs: 40_000 })
    assert.deepEqual([fleet?.inSync, waits], [false, [2000, 4000, 8000, 15_000, 11_000]])
    assert.equal(requests, waits.length + 1)
  })

  it('asks only once if there is nothing to wait for', async t => {
    for (const more of [{ waitMs: 0 }, { expectVersion: undefined }]) {
      const { waits, fleet } = await watch(t, answer([OLD]), more)
      assert.deepEqual([waits, fleet?.reports.length], [[], 1])
    }
  })

  it('logs the progress of the fleet when it changes, and once a minute', async t => {
    const two = (version: string) => answer([NEW, rowOf('app-2', { version })])
    const handlers = [two('1.0.0'), two('1.0.0'), two('1.5.0')] as const
    const { lines } = await watch(t, inTurn(...handlers), { waitMs: 100_000 })
    assert.deepEqual(lines, [
      'info 1 of 2 hosts is known to run 2.0.0; waiting for app-2 (1.0.0) (100 s left).',
      'info 1 of 2 hosts is known to run 2.0.0; waiting for app-2 (1.5.0) (94 s left).',
      'info 1 of 2 hosts is known to run 2.0.0; waiting for app-2 (1.5.0) (26 s left).',
    ])
  })

  it('asks again if the hub cannot answer at the moment, and says so', async t => {
    const away = answer({ error: 'restarting' }, 503)
    const { fleet, error, lines } = await watch(t, inTurn(away, away, away, away, answer([NEW])))
    assert.deepEqual([fleet?.inSync, error], [true, undefined])
    assert.match(lines[0] ?? '', /^info Asking again, because the hub gave no usable answer: .*503 \(restarting\)/)
  })

  it('asks again if the hub answers 429 (too many requests)', async t => {
    const busy = answer({}, 429)
    const { fleet, error } = await watch(t, inTurn(busy, busy, busy, busy, answer([NEW])))
    assert.deepEqual([fleet?.inSync, error], [true, undefined])
  })

  it('asks again if the hub breaks the connection', async t => {
    const broken: Handler = request => request.socket.destroy()
    const { fleet, error, lines } = await watch(t, inTurn(broken, broken, broken, broken, answer([NEW])))
    assert.deepEqual([fleet?.inSync, error], [true, undefined])
    assert.match(lines[0] ?? '', /no usable answer: The connection to .* broke/)
  })

  it('asks again if the hub takes longer than the time for all attempts together', async t => {
    const timers = createManualTimers()
    const server = await serve(
      t,
      inTurn(() => timers.expire(60_000), answer([NEW])),
    )
    const wire = createTestedWire({ startTimer: timers.startTimer })
    const { fleet, error, lines } = await watchServer(server.url, {}, {}, wire)
    assert.deepEqual([fleet?.inSync, error], [true, undefined])
    assert.match(lines[0] ?? '', /no usable answer: .* did not finish within 60 s in all/)
  })

  it("does not ask again if the hub's certificate is refused", {
    skip: certificate === undefined && 'openssl is not installed',
  }, async t => {
    const server = await serveTls(t, certificate as object, answer([NEW]))
    const { error, waits } = await watchServer(server.url, {})
    assert.deepEqual([error?.code, waits], ['network', []])
  })

  it('fails with the error of the last attempt, and returns the fleet that it had seen before', async t => {
    const away = answer({}, 503)
    const { fleet, error } = await watch(t, inTurn(answer([OLD]), away), { waitMs: 5000 })
    assert.deepEqual([fleet?.reports.length, error?.code], [1, 'artifact_unavailable'])
  })

  for (const [status, code] of [
    [400, 'artifact_unavailable'],
    [401, 'authentication_failed'],
    [404, 'not_found'],
    [405, 'artifact_unavailable'],
    [410, 'artifact_unavailable'],
    [422, 'artifact_unavailable'],
  ] as const)
    it(`does not ask again if the hub answers ${status}`, async t => {
      const { error, requests } = await watch(t, inTurn(answer([OLD]), answer({}, status), answer([NEW])))
      assert.deepEqual([error?.code, requests], [code, 2])
    })

  it('advises checking every credential that was sent', async t => {
    const hint = ' Some hubs answer this only to an access-token: give one.'
    for (const [credentials, named, more] of [
      [{}, 'api-key', hint],
      [{ apiKey: undefined, accessToken: 'token' }, 'access-token', ''],
      [{ accessToken: 'token' }, 'api-key and access-token', ''],
    ] as const) {
      const server = await serve(t, answer({}, 401))
      const { error } = await watchServer(server.url, {}, credentials)
      assert.match(
        error?.message ?? '',
        new RegExp(` Check ${named}, which may be wrong, revoked or expired\\.${more}$`),
      )
    }
  })

  it('is not in sync when a host disappears', async t => {
    const { fleet } = await watch(t, inTurn(answer([NEW, rowOf('app-2')]), answer([])), { waitMs: 10_000 })
    assert.deepEqual([fleet?.hosts.length, fleet?.inSync], [0, false])
  })
})
