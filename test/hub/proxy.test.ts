import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, it, type TestContext } from 'node:test'
import { signArchive } from '../../hub/marketplace/publish.ts'
import { HANG_LIMIT_MS, whyLeftToCi } from '../extent.ts'
import { freePort } from '../net/loopback-server.ts'
import { ADMIN_TOKEN, newFolder, runHub, SIGNING_SECRET } from './running-hub.ts'

const PAGE = readFileSync(resolve(import.meta.dirname, '../../docs/hub.md'), 'utf8')
const skip = whyLeftToCi() || (spawnSync('caddy', ['version']).status !== 0 && 'caddy is not on PATH')

describe('the hub behind the proxy of docs/hub.md', { skip, timeout: HANG_LIMIT_MS }, () => {
  it('serves signed artifacts, accepts reports, and asks for the admin token on its page', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const url = await startProxy(t, hub.url)
    const key = hub.newKey()
    const artifact = await fetch(`${url}/plugins/hello/install`, { headers: { 'X-API-Key': key } })
    const bytes = Buffer.from(await artifact.arrayBuffer())
    assert.equal(artifact.headers.get('x-signature'), signArchive(bytes, SIGNING_SECRET))
    // The hub was not started with --behind-proxy, but notices the proxy's headers.
    for (const host of ['hub.example.com', '127.0.0.1'])
      assert.deepEqual(await Promise.all([statusOf(url, host), statusOf(url, host, ADMIN_TOKEN)]), [401, 200], host)
  })
})

/** Starts the proxy with the page's own configuration, but with another address and without a certificate. */
async function startProxy(t: TestContext, hubUrl: string): Promise<string> {
  const block = /^hub\.example\.com \{\n[\s\S]*?\n\}/m.exec(PAGE)?.[0] ?? ''
  const port = await freePort()
  const here = block.replace('hub.example.com', `http://:${port}`).replace('127.0.0.1:8787', new URL(hubUrl).host)
  const folder = newFolder(t)
  const file = join(folder, 'Caddyfile')
  writeFileSync(file, `{\n\tadmin off\n}\n${here}\n`)
  const env = { PATH: process.env['PATH'], HOME: folder, XDG_DATA_HOME: folder }
  const proxy = spawn('caddy', ['run', '--config', file, '--adapter', 'caddyfile'], {
    env,
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const closed = once(proxy, 'close')
  t.after(async () => {
    proxy.kill()
    await closed
  })
  const log: string[] = []
  for await (const line of createInterface(proxy.stderr)) {
    log.push(line)
    if (line.includes('serving initial configuration')) break
  }
  assert.match(log.at(-1) ?? '', /serving initial configuration/, log.join('\n'))
  proxy.stderr.resume()
  return `http://127.0.0.1:${port}`
}

function statusOf(url: string, host: string, token?: string): Promise<number | undefined> {
  const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` }
  return new Promise((resolve, reject) => {
    const sent = request(url, { headers: { host, ...authorization }, agent: false }, response => {
      response.resume()
      resolve(response.statusCode)
    })
    sent.on('error', reject)
    sent.end()
  })
}
