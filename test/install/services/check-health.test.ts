import assert from 'node:assert/strict'
import { createServer, type RequestListener } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { HealthProbe } from '../../../src/core/plan/host-config.ts'
import { checkHealth, findUnhealthy } from '../../../src/install/services/check-health.ts'
import type { Healthcheck } from '../../../src/install/services/healthchecks.ts'
import { type CollectedLog, collectLog } from '../collected-log.ts'
import { temporaryDirectory } from '../temporary-directory.ts'
import { makeStandIns, type StandIns } from './stand-ins.ts'

const UNIT = { supervisor: 'systemd', scope: 'system', unit: 'web.service' } as const

interface CheckOptions {
  interval?: number
  stableFor?: number
  timeout?: number
  retries?: number
  service?: Healthcheck['service']
}

/** Time for some looks at leisure. */
const BRIEFLY = { timeout: 2, interval: 0.5 }

function checkOf(probe: HealthProbe | null, options: CheckOptions = {}): Healthcheck {
  const { interval = 0.02, stableFor = 0, timeout = 5, retries = 0, service = null } = options
  const check = probe && { probe, intervalSeconds: interval, stableForSeconds: stableFor }
  return { id: 'web', service, check, timeout_seconds: timeout, retries }
}

async function check(healthcheck: Healthcheck, log: CollectedLog = collectLog()): Promise<string> {
  return checkHealth({ healthcheck, version: '2.0.0', log, signal: new AbortController().signal })
}

/** Accepts `unhealthy` with this evidence. */
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

/** A server that answers with these statuses, one after the other, and then always with the last. */
async function serveStatuses(t: TestContext, statuses: number[]): Promise<{ url: string; asked(): number }> {
  let asked = 0
  const url = await serve(t, (_, response) => {
    response.writeHead(statuses[Math.min(asked++, statuses.length - 1)] as number).end('body')
  })
  return { url, asked: () => asked }
}

function useStandIns(t: TestContext): StandIns {
  const standIns = makeStandIns()
  const path = process.env['PATH']
  process.env['PATH'] = standIns.path
  t.after(() => {
    standIns.close()
    process.env['PATH'] = path
  })
  return standIns
}

describe('checkHealth by http', () => {
  it('waits until the service answers as it should', async t => {
    const { url, asked } = await serveStatuses(t, [503, 503, 200])
    assert.match(await check(checkOf({ type: 'http', url, status: 200 })), /HTTP 200/)
    assert.equal(asked(), 3)
  })

  it('takes the status that the host config names, and no other', async t => {
    const { url } = await serveStatuses(t, [204])
    await check(checkOf({ type: 'http', url, status: 204 }))
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, BRIEFLY)), unhealthy(/HTTP 204/))
  })

  it('does not follow a redirect', async t => {
    const url = await serve(t, ({ url: path }, response) => {
      if (path === '/fine') response.end()
      else response.writeHead(302, { location: '/fine' }).end()
    })
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, BRIEFLY)), unhealthy(/HTTP 302/))
  })

  it('tells the status and the first 2 KiB of the body, clean', async t => {
    const url = await serve(t, (_, response) =>
      response.writeHead(500).end(`::error::db\u001b[31m ${'x'.repeat(9000)}END`),
    )
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, BRIEFLY)), error => {
      unhealthy(/HTTP 500: .*db xxx/)(error)
      assert.doesNotMatch((error as Error).message, /END|::|\p{Cc}/u)
      assert.ok((error as Error).message.length < 2300)
      return true
    })
  })

  it('tells that nobody answers', async () => {
    const probe = { type: 'http', url: 'http://127.0.0.1:1/', status: 200 } as const
    await assert.rejects(check(checkOf(probe, BRIEFLY)), unhealthy(/127\.0\.0\.1:1/))
  })

  it('does not wait longer than its time for an answer', async t => {
    const url = await serve(t, () => {})
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, { timeout: 0.3 })), unhealthy(/./))
  })

  it('is not satisfied by an old process that still answers on the port', async t => {
    let version = '1.0.0'
    const url = await serve(t, (_, response) => response.end(`{"version":"${version}"}`))
    const probe = { type: 'http', url, status: 200, body: '"version":"{version}"' } as const
    await assert.rejects(check(checkOf(probe, BRIEFLY)), unhealthy(/without ""version":"2\.0\.0""/))
    version = '2.0.0'
    assert.match(await check(checkOf(probe)), /with ""version":"2\.0\.0""/)
  })

  it('finds the expected body as it was sent, however far down', async t => {
    const url = await serve(t, (_, response) => response.end(`${'\n'.repeat(5000)}a::b`))
    await check(checkOf({ type: 'http', url, status: 200, body: 'a::b' }))
  })
})

describe('checkHealth over time', () => {
  it('starts over when the service falters before it was stable', async t => {
    let asked = 0
    let falteredAt = 0
    const url = await serve(t, (_, response) => {
      const falters = ++asked === 4
      if (falters) falteredAt = performance.now()
      response.writeHead(falters ? 503 : 200).end()
    })
    await check(checkOf({ type: 'http', url, status: 200 }, { stableFor: 0.2, interval: 0.05 }))
    assert.notEqual(falteredAt, 0)
    assert.ok(performance.now() - falteredAt >= 200)
  })

  it('says that a service which is not stable long enough was healthy, but not for so long', async t => {
    const { url } = await serveStatuses(t, [200])
    const healthcheck = checkOf({ type: 'http', url, status: 200 }, { ...BRIEFLY, stableFor: 60 })
    await assert.rejects(check(healthcheck), unhealthy(/not for 60 s/))
  })

  it('begins again as often as there are retries, and tells each try', async t => {
    const { url } = await serveStatuses(t, [503])
    const log = collectLog()
    const options = { timeout: 0.2, retries: 2 }
    await assert.rejects(check(checkOf({ type: 'http', url, status: 200 }, options), log), unhealthy(/tries: 3/))
    assert.deepEqual(
      log.lines.map(line => line.slice(0, 15)),
      ['info Try 1 of 3', 'info Try 2 of 3', 'info Try 3 of 3'],
    )
  })

  it('may succeed in a later try', async t => {
    const log = collectLog()
    const url = await serve(t, (_, response) => response.writeHead(log.lines.length === 0 ? 503 : 200).end())
    await check(checkOf({ type: 'http', url, status: 200 }, { timeout: 1, retries: 1 }), log)
    assert.equal(log.lines.length, 1)
  })

  it('looks more than once however long the interval', async t => {
    const { url } = await serveStatuses(t, [503, 200])
    await check(checkOf({ type: 'http', url, status: 200 }, { timeout: 4, interval: 10 }))
  })

  it('does not miss that it was stable long enough because of the interval', async t => {
    const { url } = await serveStatuses(t, [200])
    await check(checkOf({ type: 'http', url, status: 200 }, { timeout: 4, interval: 1, stableFor: 3.5 }))
  })

  it("rejects with the signal's reason when it is cancelled", async t => {
    const controller = new AbortController()
    const reason = new Error('cancelled')
    const url = await serve(t, () => controller.abort(reason))
    const request = { version: null, log: collectLog(), signal: controller.signal }
    const healthcheck = checkOf({ type: 'http', url, status: 200 })
    await assert.rejects(checkHealth({ healthcheck, ...request }), error => error === reason)
    for (const probe of [
      { type: 'tcp', address: '127.0.0.1:1' },
      { type: 'command', command: ['true'] },
    ] as const) {
      await assert.rejects(checkHealth({ healthcheck: checkOf(probe), ...request }))
    }
  })
})

describe('checkHealth by tcp', () => {
  it('holds when somebody listens', async t => {
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

  it('fails when nobody does', async () => {
    const healthcheck = checkOf({ type: 'tcp', address: '127.0.0.1:1' }, BRIEFLY)
    await assert.rejects(check(healthcheck), unhealthy(/127\.0\.0\.1:1.*ECONNREFUSED/))
  })
})

describe('checkHealth by a command', () => {
  it('holds by its exit code, and tells its output', async t => {
    const standIns = useStandIns(t)
    const marker = join(temporaryDirectory(t), 'marker')
    const command = standIns.add('check', `[ -e '${marker}' ] && echo fine && exit; touch '${marker}'; exit 1`)
    assert.match(await check(checkOf({ type: 'command', command: [command] })), /fine/)
    const broken = standIns.add('broken', 'echo "no route"; exit 3')
    const healthcheck = checkOf({ type: 'command', command: [broken, 'a b'] }, BRIEFLY)
    await assert.rejects(check(healthcheck), unhealthy(/exit code 3.*no route/))
    assert.deepEqual(standIns.calls().at(-1), ['broken', 'a b'])
  })

  it('fails when the command is not there or takes too long', async t => {
    const missing = checkOf({ type: 'command', command: ['/no/such/check'] }, BRIEFLY)
    await assert.rejects(check(missing), unhealthy(/ENOENT/))
    const command = useStandIns(t).add('slow', 'exec sleep 60')
    await assert.rejects(
      check(checkOf({ type: 'command', command: [command] }, { timeout: 0.2 })),
      unhealthy(/in time/),
    )
  })
})

describe('checkHealth with a supervisor', () => {
  it('needs its word as well as the check', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web.service', 'activating')
    const { url, asked } = await serveStatuses(t, [200])
    const probe = { type: 'http', url, status: 200 } as const
    await assert.rejects(check(checkOf(probe, { ...BRIEFLY, service: UNIT })), unhealthy(/activating/))
    assert.equal(asked(), 0)
    standIns.setState('web.service', 'active')
    assert.match(await check(checkOf(probe, { ...BRIEFLY, service: UNIT })), /HTTP 200/)
    assert.ok(asked() >= 2, 'it need not hold')
  })

  it('can pass by its word alone within a second', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web.service', 'active')
    assert.match(await check(checkOf(null, { service: UNIT, timeout: 1, retries: 3 })), /active/)
    const looks = standIns.calls().filter(call => call.includes('is-active'))
    assert.ok(looks.length >= 2)
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
    it(`is not satisfied when ${program} starts it over and over, though every look finds it running`, async t => {
      const standIns = useStandIns(t)
      standIns.setState('unit' in service ? service.unit : 'web', state)
      standIns.before(program, question, 'begin')
      await assert.rejects(check(checkOf(null, { ...BRIEFLY, service })), unhealthy(/started again/))
    })
  }
})

describe('findUnhealthy', () => {
  it('tells what is not healthy, and that the rest is', async t => {
    const { url } = await serveStatuses(t, [200])
    const log = collectLog()
    const fine = checkOf({ type: 'http', url, status: 200 })
    const broken = checkOf({ type: 'tcp', address: '127.0.0.1:1' }, BRIEFLY)
    const checks = [broken, fine].map(check => ({ ...check, previous_version: '1.0.0' }))
    assert.equal((await findUnhealthy(checks, log)).length, 1)
    assert.ok(log.lines.some(line => line.startsWith('info web is healthy again.')))
  })

  it('expects the version that is back', async t => {
    const url = await serve(t, (_, response) => response.end('1.0.0'))
    const healthcheck = checkOf({ type: 'http', url, status: 200, body: '{version}' }, BRIEFLY)
    const found = (previous_version: string) => findUnhealthy([{ ...healthcheck, previous_version }], collectLog())
    assert.deepEqual(await found('1.0.0'), [])
    assert.equal((await found('2.0.0')).length, 1)
  })
})
