import assert from 'node:assert/strict'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { HealthProbe } from '../../../src/core/plan/host-config.ts'
import { type Clock, systemClock } from '../../../src/install/files/child-process.ts'
import { checkHealth, findUnhealthy, type Healthcheck } from '../../../src/install/services/health.ts'
import { createSteppedClock } from '../../clocks.ts'
import { temporaryDirectory } from '../../folders.ts'
import { makeCertificate, serveTls } from '../../net/loopback-server.ts'
import { collectLog } from '../prepared-host.ts'
import { useStandIns } from './stand-ins.ts'

const UNIT = { supervisor: 'systemd', scope: 'system', unit: 'web.service' } as const

interface CheckOptions {
  interval?: number
  stableFor?: number
  timeout?: number
  retries?: number
  service?: Healthcheck['service']
}

/** Time for four probes. The pauses take no real time, and each probe has enough real time even on a busy machine. */
const FOUR_PROBES = { timeout: 40, interval: 10 }

function checkOf(probe: HealthProbe | null, options: CheckOptions = {}): Healthcheck {
  const { interval = 1, stableFor = 0, timeout = 100, retries = 0, service = null } = options
  const check = probe && { probe, intervalSeconds: interval, stableForSeconds: stableFor }
  return { id: 'web', service, check, timeout_seconds: timeout, retries }
}

/** Sends real probes, but sleeps on this clock. Resolves to the evidence. */
async function check(
  healthcheck: Healthcheck,
  log = collectLog(),
  clock: Clock = createSteppedClock(),
): Promise<string> {
  const { signal } = new AbortController()
  return checkHealth({ healthcheck, version: '2.0.0', changed: true, log, signal }, clock).then(
    ({ evidence }) => evidence,
  )
}

/** Accepts a DeploymentError with the code `unhealthy` and with this evidence in its message. */
function unhealthy(evidence: RegExp): (error: unknown) => boolean {
  return error => {
    assert.ok(error instanceof DeploymentError)
    assert.equal(error.code, 'unhealthy')
    assert.match(error.message, evidence)
    return true
  }
}

async function serve(t: TestContext, listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  t.after(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as { port: number }).port}/health`
}

/** A server that answers with these statuses one after the other, and then always with the last. */
async function serveStatuses(t: TestContext, statuses: number[]): Promise<{ url: string; asked(): number }> {
  let asked = 0
  const url = await serve(t, (_, response) => {
    response.writeHead(statuses[Math.min(asked++, statuses.length - 1)] as number).end('body')
  })
  return { url, asked: () => asked }
}

describe('checkHealth by http', () => {
  it('waits until the service gives the expected answer', async t => {
    const { url, asked } = await serveStatuses(t, [503, 503, 200])
    assert.match(await check(checkOf({ type: 'http', url, status: 200 })), /HTTP 200/)
    assert.equal(asked(), 3)
  })

  it('reports the result of the last complete probe, not that of a probe that the timeout cut short', async t => {
    let asked = 0
    const url = await serve(t, (_, response) => {
      if (++asked < 4) response.writeHead(503).end('cannot open the database')
    })
    const skipping = createSteppedClock()
    // The fourth probe takes all the time that is left.
    const clock = { ...skipping, now: () => skipping.now() + (asked === 4 ? 1000 : 0) }
    const probe = { type: 'http', url, status: 200 } as const
    await assert.rejects(
      check(checkOf(probe, { timeout: 4, interval: 1 }), collectLog(), clock),
      unhealthy(/HTTP 503 \(expected 200\): cannot open the database$/),
    )
    assert.equal(asked, 4)
  })

  it('accepts the status that the host config names, and no other', async t => {
    const { url } = await serveStatuses(t, [204])
    await check(checkOf({ type: 'http', url, status: 204 }))
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, FOUR_PROBES)), unhealthy(/HTTP 204/))
  })

  it('does not follow a redirect', async t => {
    const url = await serve(t, ({ url: path }, response) => {
      if (path === '/fine') response.end()
      else response.writeHead(302, { location: '/fine' }).end()
    })
    await assert.rejects(
      check(checkOf({ type: 'http', url, status: 200 }, FOUR_PROBES)),
      unhealthy(/HTTP 302 to \/fine \(expected 200\)/),
    )
  })

  it('accepts an encoded or huge page if no text in it is expected', async t => {
    for (const head of [{ 'content-encoding': 'gzip' }, {}]) {
      const url = await serve(t, (_, response) => response.writeHead(200, head).end('x'.repeat(9_000_000)))
      await check(checkOf({ type: 'http', url, status: 200 }))
      const expected = { type: 'http', url, status: 200, body: 'version 2' } as const
      const refused = unhealthy(
        /(?:an encoded body|a longer body).*: check the service and its address in the host config/,
      )
      await assert.rejects(check(checkOf(expected, FOUR_PROBES)), refused)
    }
  })

  const certificate = makeCertificate()
  const skip = certificate === undefined ? 'openssl is not installed' : false
  it('does not advise an input of the hub for a certificate that nobody vouches for', { skip }, async t => {
    const { url } = await serveTls(t, { ...certificate }, (_, response) => response.end())
    const refused = unhealthy(/was refused \(.*\), and nothing was sent\. Check the certificate of the service\.$/)
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, FOUR_PROBES)), refused)
  })

  it('quotes at most 200 characters of a page without the expected body', async t => {
    const url = await serve(t, (_, response) => response.end(`<html>${'x'.repeat(9000)}`))
    const probe = { type: 'http', url, status: 200, body: 'version 2' } as const
    await assert.rejects(check(checkOf(probe, FOUR_PROBES)), error => {
      unhealthy(/HTTP 200, without `version 2`: <html>x{194}… \(cut\)$/)(error)
      return true
    })
  })

  it('reports the status and the first 2 KiB of the body, clean', async t => {
    const url = await serve(t, (_, response) =>
      response.writeHead(500).end(`::error::db\u001b[31m ${'x'.repeat(9000)}END`),
    )
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, FOUR_PROBES)), error => {
      unhealthy(/HTTP 500 \(expected 200\): .*db xxx/)(error)
      assert.doesNotMatch((error as Error).message, /END|\p{Cc}/u)
      assert.ok((error as Error).message.length < 2300)
      return true
    })
  })

  const silent = {
    'http://127.0.0.1:1/': /nothing listens on 127\.0\.0\.1:1 \(ECONNREFUSED\): did the service start\?$/,
    'http://localhost:1/health': /nothing listens on localhost:1 /,
    'https://[::1]/': /nothing listens on \[::1\]:443 /,
  }
  for (const [url, expected] of Object.entries(silent)) {
    it(`asks whether the service started, and does not mention a proxy, when nothing listens at ${url}`, async () => {
      const probe = { type: 'http', url, status: 200 } as const
      await assert.rejects(check(checkOf(probe, FOUR_PROBES)), error => {
        unhealthy(expected)(error)
        assert.doesNotMatch((error as Error).message, /proxy/)
        return true
      })
    })
  }

  it('does not mention a proxy when the service breaks the connection', async t => {
    const url = await serve(t, ({ socket }) => socket.destroy())
    const probe = { type: 'http', url, status: 200 } as const
    await assert.rejects(check(checkOf(probe, FOUR_PROBES)), unhealthy(/broke .*: check the service and its address/))
  })

  it('does not wait for an answer beyond the timeout', async t => {
    const url = await serve(t, () => {})
    const healthcheck = checkOf({ type: 'http', url, status: 200 }, { timeout: 0.3 })
    await assert.rejects(check(healthcheck, collectLog(), systemClock), unhealthy(/./))
  })

  it('does not pass because an old process still answers on the port', async t => {
    let version = '1.0.0'
    const url = await serve(t, (_, response) => response.end(`{"version":"${version}"}`))
    const probe = { type: 'http', url, status: 200, body: '"version":"{version}"' } as const
    await assert.rejects(check(checkOf(probe, FOUR_PROBES)), unhealthy(/without `"version":"2\.0\.0"`/))
    version = '2.0.0'
    assert.match(await check(checkOf(probe)), /with `"version":"2\.0\.0"`/)
  })

  it('finds the expected body as it was sent, however far from the start', async t => {
    const url = await serve(t, (_, response) => response.end(`${'\n'.repeat(5000)}a::b`))
    await check(checkOf({ type: 'http', url, status: 200, body: 'a::b' }))
  })
})

describe('checkHealth over time', () => {
  it('starts over when the service falters before it is stable', async t => {
    const { url, asked } = await serveStatuses(t, [200, 200, 200, 503, 200])
    const clock = createSteppedClock()
    await check(checkOf({ type: 'http', url, status: 200 }, { stableFor: 20, interval: 5 }), collectLog(), clock)
    // The fourth probe fails at 15 s, so the period starts over with the fifth one, at 20 s.
    assert.deepEqual([clock.now(), asked()], [40_000, 9])
  })

  it('says that a service was healthy, but not for long enough', async t => {
    const { url } = await serveStatuses(t, [200])
    const healthcheck = checkOf({ type: 'http', url, status: 200 }, { ...FOUR_PROBES, stableFor: 60 })
    await assert.rejects(check(healthcheck), unhealthy(/not for 60 s/))
  })

  it('starts again as often as there are retries, logs each failed attempt but the last, and throws the last', async t => {
    const { url } = await serveStatuses(t, [503])
    const log = collectLog()
    const options = { ...FOUR_PROBES, retries: 2 }
    await assert.rejects(
      check(checkOf({ type: 'http', url, status: 200 }, options), log),
      unhealthy(/in 3 attempts of [\d.]+ s each: /),
    )
    assert.deepEqual(
      log.lines.map(line => line.slice(0, 22)),
      ['info In attempt 1 of 3', 'info In attempt 2 of 3'],
    )
  })

  it('may succeed in a later attempt', async t => {
    const log = collectLog()
    const url = await serve(t, (_, response) => response.writeHead(log.lines.length === 0 ? 503 : 200).end())
    await check(checkOf({ type: 'http', url, status: 200 }, { ...FOUR_PROBES, retries: 1 }), log)
    assert.equal(log.lines.length, 1)
  })

  it('probes more than once, however long the interval', async t => {
    const { url } = await serveStatuses(t, [503, 200])
    await check(checkOf({ type: 'http', url, status: 200 }, { timeout: 40, interval: 100 }))
  })

  it('does not miss a stable period that ends between two intervals', async t => {
    const { url } = await serveStatuses(t, [200])
    await check(checkOf({ type: 'http', url, status: 200 }, { timeout: 40, interval: 10, stableFor: 35 }))
  })

  it("rejects with the signal's reason when it is cancelled", async t => {
    const controller = new AbortController()
    const reason = new Error('cancelled')
    const url = await serve(t, () => controller.abort(reason))
    const request = { version: null, changed: true, log: collectLog(), signal: controller.signal }
    const healthcheck = checkOf({ type: 'http', url, status: 200 })
    await assert.rejects(checkHealth({ healthcheck, ...request }), error => error === reason)
    for (const probe of [
      { type: 'tcp', address: '127.0.0.1:1' },
      { type: 'command', command: ['true'] },
    ] as const) {
      await assert.rejects(checkHealth({ healthcheck: checkOf(probe), ...request }), error => error === reason)
    }
  })
})

describe('checkHealth by tcp', () => {
  it('passes when something listens', async t => {
    for (const [host, shown] of [
      ['127.0.0.1', '127.0.0.1'],
      ['::1', '[::1]'],
    ] as const) {
      const server = createTcpServer()
      await new Promise<void>((resolve, reject) => server.listen(0, host, resolve).once('error', reject))
      t.after(() => void server.close())
      const address = `${shown}:${(server.address() as { port: number }).port}`
      assert.match(await check(checkOf({ type: 'tcp', address })), /connected/)
    }
  })

  it('fails when nothing listens', async () => {
    const healthcheck = checkOf({ type: 'tcp', address: '127.0.0.1:1' }, FOUR_PROBES)
    await assert.rejects(check(healthcheck), unhealthy(/: nothing listens on 127\.0\.0\.1:1 .*did the service start/))
    await assert.rejects(check(healthcheck), ({ message }) => message.split('127.0.0.1:1').length === 2)
  })
})

describe('checkHealth by a command', () => {
  it('passes by its exit code, and reports its output', async t => {
    const standIns = useStandIns(t)
    const marker = join(temporaryDirectory(t), 'marker')
    const command = standIns.add('check', `[ -e '${marker}' ] && echo fine && exit; touch '${marker}'; exit 1`)
    assert.match(await check(checkOf({ type: 'command', command: [command] })), /fine/)
    const broken = standIns.add('broken', 'echo "no route"; exit 3')
    const healthcheck = checkOf({ type: 'command', command: [broken, 'a b'] }, FOUR_PROBES)
    await assert.rejects(check(healthcheck), unhealthy(/exit code 3.*no route/))
    assert.deepEqual(standIns.calls().at(-1), ['broken', 'a b'])
  })

  it('fails when the command does not exist or takes too long', async t => {
    const missing = checkOf({ type: 'command', command: ['/no/such/check'] }, FOUR_PROBES)
    await assert.rejects(check(missing), unhealthy(/ENOENT/))
    const command = useStandIns(t).add('slow', 'exec sleep 60')
    const slow = checkOf({ type: 'command', command: [command] }, { timeout: 0.2 })
    await assert.rejects(check(slow, collectLog(), systemClock), unhealthy(/in time/))
  })
})

describe('checkHealth with a supervisor', () => {
  it("needs the supervisor's answer as well as the check", async t => {
    const standIns = useStandIns(t)
    standIns.setState('web.service', 'activating')
    const { url, asked } = await serveStatuses(t, [200])
    const probe = { type: 'http', url, status: 200 } as const
    await assert.rejects(
      check(checkOf(probe, { ...FOUR_PROBES, service: UNIT })),
      unhealthy(/: unit web\.service is activating \(ActiveState\), expected active$/),
    )
    assert.equal(asked(), 0)
    standIns.setState('web.service', 'active')
    assert.match(await check(checkOf(probe, { ...FOUR_PROBES, service: UNIT })), /HTTP 200/)
    assert.ok(asked() >= 2)
  })

  it("can pass by the supervisor's answer alone, within half of a short timeout", async t => {
    const standIns = useStandIns(t)
    standIns.setState('web.service', 'active')
    const clock = createSteppedClock()
    assert.match(await check(checkOf(null, { service: UNIT, timeout: 6 }), collectLog(), clock), /active/)
    const probes = standIns.calls().filter(call => call.includes('is-active'))
    assert.deepEqual([clock.now(), probes.length], [3000, 4])
  })

  const kinds = [
    ['systemctl', 'show', UNIT, 'active'],
    ['docker', 'inspect', { supervisor: 'docker', container: 'web' }, 'running'],
    [
      'kubectl',
      'get',
      { supervisor: 'kubernetes', namespace: 'apps', deployment: 'web', kubeconfig: null, context: null },
      '1',
    ],
  ] as const
  for (const [program, question, service, state] of kinds) {
    it(`does not pass when ${program} starts the service over and over, even if every probe finds the service running`, async t => {
      const standIns = useStandIns(t)
      standIns.setState('unit' in service ? service.unit : 'web', state)
      standIns.before(program, question, 'begin')
      await assert.rejects(check(checkOf(null, { service, timeout: 8 })), unhealthy(/started again/))
    })
  }
})

describe('checkHealth in Kubernetes', () => {
  const DEPLOYMENT = {
    supervisor: 'kubernetes',
    namespace: 'apps',
    deployment: 'web',
    kubeconfig: null,
    context: null,
  } as const

  it('does not pass with containers that restart too fast to be called unavailable', async t => {
    const standIns = useStandIns(t)
    standIns.setState('restarts', '0')
    const restart = 'echo $(($(cat state/restarts) + 1)) > state/restarts'
    standIns.before('kubectl', 'get', `case $* in *restartCount*) ${restart} ;; esac`)
    const healthcheck = checkOf(null, { service: DEPLOYMENT, timeout: 8 })
    await assert.rejects(check(healthcheck), unhealthy(/started again during the check/))
    const call = standIns.calls().find(call => call.includes('pods'))
    assert.deepEqual(call?.slice(0, 5), ['kubectl', '--namespace=apps', 'get', 'pods', '--selector=app=web'])
  })

  it('does not count restarts before the check', async t => {
    const standIns = useStandIns(t)
    standIns.setState('restarts', '4 0 7')
    assert.match(await check(checkOf(null, { service: DEPLOYMENT, timeout: 8 })), /replicas 1, updated 1, available 1/)
  })

  it('does not count it as a restart if kubectl leaves a question unanswered once', async t => {
    for (const question of ['restartCount', 'lastTransitionTime']) {
      const standIns = useStandIns(t)
      standIns.setState('restarts', '4')
      const failOnce = `[ ! -e asked ] || [ -e failed ] || { touch failed; exit 1; }; touch asked`
      standIns.before('kubectl', 'get', `case $* in *${question}*) ${failOnce} ;; esac`)
      const evidence = await check(checkOf(null, { service: DEPLOYMENT, timeout: 8 }))
      assert.doesNotMatch(evidence, /started again/, question)
    }
  })

  it('passes if listing the pods is forbidden', async t => {
    const standIns = useStandIns(t)
    standIns.before('kubectl', 'get', 'case $* in *restartCount*) echo Forbidden >&2; exit 1 ;; esac')
    await check(checkOf(null, { service: DEPLOYMENT, timeout: 8 }))
  })
})

describe('the attempts of a check', () => {
  it('name the version, so that those of the new version and of the restored one differ', async () => {
    const log = collectLog()
    const healthcheck = checkOf({ type: 'tcp', address: '127.0.0.1:1' }, { timeout: 1 })
    await assert.rejects(check(healthcheck, log), unhealthy(/^web 2\.0\.0 was not healthy/))
    const { problems } = await findUnhealthy([{ ...healthcheck, previous_version: '1.0.0' }], {
      log,
      signal: new AbortController().signal,
    })
    assert.match(problems[0] ?? '', /^The restored web 1\.0\.0 was not healthy/)
  })
})

describe('findUnhealthy', () => {
  const { signal } = new AbortController()

  it('lists the unhealthy services, and says that the others are healthy', async t => {
    const { url } = await serveStatuses(t, [200])
    const log = collectLog()
    const fine = checkOf({ type: 'http', url, status: 200 })
    const broken = checkOf({ type: 'tcp', address: '127.0.0.1:1' }, { timeout: 1 })
    const checks = [broken, fine].map(check => ({ ...check, previous_version: '1.0.0' }))
    const { healthy, problems } = await findUnhealthy(checks, { log, signal })
    assert.deepEqual([healthy, problems.length], [false, 1])
    assert.ok(log.lines.some(line => line.startsWith('info web is healthy again: ')))
  })

  it('does not say that a service is healthy if it cannot examine the service', async () => {
    const log = collectLog()
    const nothing = { ...checkOf(null, { timeout: 1 }), previous_version: '1.0.0' }
    assert.match(
      (await findUnhealthy([nothing], { log, signal })).problems.join(),
      /has no service and no check for it/,
    )
    assert.deepEqual(log.lines, [])
  })

  it('does not call a service unhealthy if the supervisor may not be asked about it', async t => {
    const standIns = useStandIns(t)
    standIns.before('docker', 'inspect', 'echo "permission denied while trying to connect to the daemon" >&2; exit 1')
    const service = { supervisor: 'docker', container: 'web' } as const
    const healthcheck = checkOf(null, { service, timeout: 1 })
    const { healthy, problems } = await findUnhealthy([{ ...healthcheck, previous_version: '1.0.0' }], {
      log: collectLog(),
      signal,
    })
    assert.equal(healthy, null)
    assert.match(problems.join(), /^The health of the restored web 1\.0\.0 is not known: .*docs\/security\.md#/)
  })

  it('makes one attempt, whatever the retries of the check', async () => {
    const log = collectLog()
    const once = checkOf({ type: 'tcp', address: '127.0.0.1:1' }, { timeout: 1, retries: 3 })
    const { problems } = await findUnhealthy([{ ...once, previous_version: '1.0.0' }], { log, signal })
    assert.match(problems[0] ?? '', /within 1 s: nothing listens/)
    assert.deepEqual(log.lines, [])
  })

  it('expects the restored version', async t => {
    const url = await serve(t, (_, response) => response.end('1.0.0'))
    const probe = { type: 'http', url, status: 200, body: '{version}' } as const
    const find = (previous_version: string, timeout: number) =>
      findUnhealthy([{ ...checkOf(probe, { timeout }), previous_version }], { log: collectLog(), signal })
    assert.deepEqual(await find('1.0.0', 100), { healthy: true, problems: [] })
    assert.equal((await find('2.0.0', 1)).healthy, false)
  })
})
