import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import fc from 'fast-check'
import { signatureOf } from '../e2e/harness/untrusted-hub.ts'
import { sampled } from '../extent.ts'
import { bodyBytes, startCuttingProxy } from '../net/cutting-proxy.ts'
import { createTestedWire, openPrivateFile } from '../net/tested-wire.ts'
import { runShopHub } from './project/project-client.ts'
import { runHub, SIGNING_SECRET } from './running-hub.ts'

const LIMITS = { maxBytes: 1024 * 1024, timeoutMs: 600_000 }

interface Served {
  readonly port: number
  readonly path: string
  readonly headers: Record<string, string>
}

const HUBS = {
  async plugin(t: TestContext): Promise<Served> {
    const hub = await runHub(t)
    await hub.publish()
    return {
      port: Number(new URL(hub.url).port),
      path: '/plugins/hello/install',
      headers: { 'X-API-Key': hub.newKey() },
    }
  },
  async project(t: TestContext): Promise<Served> {
    const { hub, token } = await runShopHub(t)
    const descriptor = await hub.call('/v1/projects/shop/artifacts/1.0.0', { bearer: token })
    const { pathname } = new URL(((await descriptor.json()) as { download_url: string }).download_url)
    return { port: Number(new URL(hub.url).port), path: pathname, headers: {} }
  },
}

/** Fetches the artifact while the proxy cuts connections. */
async function fetchCut(t: TestContext, { port, path, headers }: Served, cuts: readonly number[]) {
  const proxy = await startCuttingProxy(t, port, cuts)
  const file = openPrivateFile(t)
  const answer = await createTestedWire().download({
    url: proxy.url + path,
    credentials: headers,
    hmacSecret: SIGNING_SECRET,
    fd: file.fd,
    ...LIMITS,
  })
  assert.ok(answer.ok)
  return { answer, proxy, bytes: file.read() }
}

for (const [name, open] of Object.entries(HUBS)) {
  describe(`the artifact of a ${name}`, () => {
    it('arrives whole, and each byte once, wherever the connection breaks', async t => {
      const served = await open(t)
      const { proxy, bytes, answer } = await fetchCut(t, served, [])
      const [all] = proxy.passed
      const positions = Array.from({ length: all?.bytes ?? 0 }, (_, position) => position)
      for (const cut of sampled(positions, 40)) {
        const broken = await fetchCut(t, served, [cut])
        assert.ok(broken.bytes.equals(bytes), `after ${cut} bytes`)
        assert.deepEqual(broken.answer.hmacSha256, answer.hmacSha256)
        assert.equal(bodyBytes(broken.proxy), bytes.length, `after ${cut} bytes`)
      }
      if (answer.headers['x-signature']) assert.equal(answer.headers['x-signature'], signatureOf(bytes, SIGNING_SECRET))
    })

    it('arrives whole wherever three connections break', async t => {
      const served = await open(t)
      const { proxy, bytes } = await fetchCut(t, served, [])
      const cut = fc.nat((proxy.passed[0]?.bytes ?? 1) - 1)
      const cuts = fc.array(cut, { minLength: 2, maxLength: 3 })
      const check = async (cuts: number[]) => assert.ok((await fetchCut(t, served, cuts)).bytes.equals(bytes))
      await fc.assert(fc.asyncProperty(cuts, check), { numRuns: 30 })
    })
  })
}
