import assert from 'node:assert/strict'
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, chmodSync, copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:https'
import { connect } from 'node:net'
import { hostname } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { describe, it, type TestContext } from 'node:test'
import { readTls } from '../../../hub/http/tls.ts'
import { startHub } from '../../../hub/server.ts'
import { COMPILE_CACHE } from '../../compile-cache.ts'
import { HANG_LIMIT_MS } from '../../extent.ts'
import { CLI, hub } from '../run-cli.ts'
import { ADMIN_TOKEN, newFolder, runHub, SIGNING_SECRET } from '../running-hub.ts'

const PLUGIN = resolve(import.meta.dirname, '../../../examples/plugin')
const NAMES = 'subjectAltName=DNS:localhost,IP:127.0.0.1'

const skip = spawnSync('openssl', ['version']).status !== 0 && 'openssl is not on PATH'

describe('a hub with a certificate', { skip, concurrency: 2, timeout: HANG_LIMIT_MS }, () => {
  it('serves HTTPS, and asks for the admin token under a name other than a loopback one', async t => {
    const { cert, key } = issue(t)
    const tls = { cert: readFileSync(cert), key: readFileSync(key) }
    const hub = await runHub(t, { tls })
    assert.match(hub.url, /^https:/)
    assert.equal((await get(`${hub.url}/healthz`, tls.cert)).status, 200)
    assert.equal((await get(hub.url, tls.cert)).status, 200)
    assert.equal((await get(hub.url, tls.cert, { host: 'attacker.example' })).status, 401)
    const authorization = `Bearer ${ADMIN_TOKEN}`
    assert.equal((await get(hub.url, tls.cert, { host: 'attacker.example', authorization })).status, 200)
  })

  it('receives a plugin from a machine that trusts the certificate, and no token from any other', async t => {
    const { cert, key } = issue(t)
    const running = await runHub(t, { tls: { cert: readFileSync(cert), key: readFileSync(key) } })
    const env = { ...process.env, SECRET: SIGNING_SECRET, TOKEN: ADMIN_TOKEN, NODE_COMPILE_CACHE: COMPILE_CACHE }
    const publish = async (more: Record<string, string>) => {
      const secrets = ['--signing-secret-env', 'SECRET', '--token-env', 'TOKEN']
      const args = [CLI, 'publish', '--from', PLUGIN, ...secrets, '--hub-url', running.url]
      const child = spawn(process.execPath, args, { env: { ...env, ...more }, stdio: ['ignore', 'ignore', 'pipe'] })
      const printed = text(child.stderr)
      return { code: (await once(child, 'exit'))[0], stderr: await printed }
    }
    const refused = await publish({ NODE_EXTRA_CA_CERTS: '' })
    assert.equal(refused.code, 1)
    assert.match(refused.stderr, / cannot be reached \(DEPTH_ZERO_SELF_SIGNED_CERT\): check /)
    assert.equal((await get(`${running.url}/plugins/greeter`, readFileSync(cert))).status, 404)
    assert.deepEqual(await publish({ NODE_EXTRA_CA_CERTS: cert }), { code: 0, stderr: '' })
  })

  it('stops even if a client does not finish its handshake', async t => {
    const { cert, key } = issue(t)
    const hub = await startHub({ dataDir: newFolder(t), tls: { cert: readFileSync(cert), key: readFileSync(key) } })
    const client = connect(Number(new URL(hub.url).port), '127.0.0.1')
    const ended = once(client, 'close')
    await once(client, 'connect')
    // After this request, the hub also knows of the client, which connected earlier.
    assert.equal((await get(`${hub.url}/healthz`, readFileSync(cert))).status, 200)
    await hub.close()
    await ended
  })

  it('loads a renewed certificate on SIGHUP, but keeps the old one if the new one is unusable', async t => {
    const [old, renewed] = [issue(t), issue(t)]
    const server = await serve(t, old)
    assert.equal((await get(server.url, readFileSync(old.cert))).status, 200)
    copyFileSync(renewed.cert, old.cert)
    assert.match(await server.renew(), /does not belong to the certificate.*keeps its current certificate/)
    await assert.rejects(get(server.url, readFileSync(renewed.cert)), { code: 'DEPTH_ZERO_SELF_SIGNED_CERT' })
    copyFileSync(renewed.key, old.key)
    assert.match(await server.renew(), /New connections use the certificate/)
    assert.equal((await get(server.url, readFileSync(renewed.cert))).status, 200)
    assert.ok(!server.printed.join('\n').includes('PRIVATE'))
  })

  for (const [name, shown] of Object.entries({
    'DNS:hub.example.com': 'hub.example.com',
    'IP:192.0.2.1': '192.0.2.1',
    'IP:2001:db8::1': '[2001:DB8:0:0:0:0:0:1]',
    'DNS:*.example.com': hostname(),
  }))
    it(`names an address that clients can use when it listens on all addresses with a certificate for ${name}`, async t => {
      const server = await serve(t, issue(t, `${NAMES},${name}`), ['--host', '0.0.0.0'])
      const url = await server.find(/^Other machines reach the hub at (\S+)$/)
      assert.equal(url, server.url.replace('0.0.0.0', shown))
    })

  it('says so if its certificate has no name that clients could use', async t => {
    const server = await serve(t, issue(t), ['--host', '0.0.0.0'])
    const names = await server.find(/^The certificate is only for (.+), so other machines refuse it: /)
    assert.equal(names, 'localhost, 127.0.0.1')
  })

  for (const [name, wrong, message] of [
    [
      'a key of another certificate',
      ({ key }, other) => copyFileSync(other.key, key),
      /does not belong to the certificate/,
    ],
    [
      'a key that others can read',
      ({ key }) => chmodSync(key, 0o644),
      /key\.pem \(mode 0644\): run "chmod 600 \S+key\.pem"\.$/m,
    ],
    ['a key that others can write', ({ key }) => chmodSync(key, 0o602), /mode 0602/],
    [
      'no key in the file',
      ({ key, cert }) => writeFileSync(key, readFileSync(cert)),
      /key\.pem contains no valid private key/,
    ],
    [
      'no certificate in the file',
      ({ key, cert }) => copyFileSync(key, cert),
      /cert\.pem contains no valid certificate/,
    ],
    ['an empty certificate', ({ cert }) => writeFileSync(cert, ''), /cert\.pem contains no valid certificate/],
    [
      'a broken chain',
      ({ cert }) => appendFileSync(cert, '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'),
      /TLS cannot use the certificate .*cert\.pem with the key .*key\.pem \(ERR_/,
    ],
    ['a weak key', weaken, /TLS cannot use .*cert\.pem.*key\.pem \(ERR_SSL_.*TOO_SMALL\)/],
    ['a key with a passphrase', ({ key }) => encrypt(key), /key\.pem needs a passphrase/],
  ] as readonly [string, (files: Issued, other: Issued) => void, RegExp][]) {
    it(`is refused with ${name}, in a sentence that does not quote the key`, async t => {
      const files = issue(t)
      const secret = readFileSync(files.key, 'utf8').split('\n')[1] ?? ''
      wrong(files, issue(t))
      chmodSync(files.cert, 0o644)
      const ended = await hub('serve', ...optionsOf(files), '--port', '0', '--data', join(newFolder(t), 'data'))
      assert.equal(ended.code, 1)
      assert.match(ended.stderr, message)
      assert.ok(!ended.stderr.includes(secret))
      assert.equal(ended.stderr.trim().split('\n').length, 1)
    })
  }

  for (const [days, message] of [
    [31, /expired on \d{4}-\d\d-\d\d: clients will refuse it/],
    [-2, /is not valid before \d{4}-\d\d-\d\d/],
    [1, undefined],
  ] as const) {
    it(`${message === undefined ? 'does not warn' : 'warns'} about a certificate that is valid for one day if the clock is ${days} days ahead`, t => {
      const { cert, key } = issue(t)
      const { warnings } = readTls({ certFile: cert, keyFile: key }, Date.now() + days * 86_400_000)
      assert.equal(warnings.length, message === undefined ? 0 : 1)
      assert.match(warnings.join(), message ?? /^$/)
    })
  }

  for (const only of ['--tls-cert', '--tls-key'])
    it(`refuses ${only} without the other option`, async t => {
      const { code, stderr } = await hub('serve', only, 'x', '--data', join(newFolder(t), 'data'))
      assert.deepEqual([code, /^The option --tls-(cert|key) is required/.test(stderr)], [2, true], stderr)
    })

  it('names a file that does not exist', async t => {
    const files = { ...issue(t), key: '/missing' }
    const { code, stderr } = await hub('serve', ...optionsOf(files), '--data', join(newFolder(t), 'data'))
    assert.equal(code, 1)
    assert.match(stderr, /^The file \/missing of --tls-key does not exist/)
  })
})

describe('a hub behind a proxy', () => {
  it('asks for the admin token, even under a loopback name', async t => {
    const hub = await runHub(t, { behindProxy: true })
    assert.equal((await hub.call('/')).status, 401)
    assert.equal((await hub.call('/', { bearer: ADMIN_TOKEN })).status, 200)
  })

  for (const name of ['Forwarded', 'Via', 'X-Forwarded-For', 'X-Forwarded-Host', 'X-Forwarded-Proto', 'X-Real-IP'])
    it(`notices it by the header ${name}`, async t => {
      const hub = await runHub(t)
      assert.equal((await hub.call('/', { headers: { [name]: '1.1 proxy' } })).status, 401)
    })
})

interface Issued {
  readonly cert: string
  readonly key: string
}

let others = 0

/** A separate certificate for this machine, valid for 30 days. */
function issue(t: TestContext, names?: string): Issued {
  const folder = newFolder(t)
  const files = { cert: join(folder, 'cert.pem'), key: join(folder, 'key.pem') }
  sign(files, ['ec', '-pkeyopt', 'ec_paramgen_curve:P-256'], names)
  return files
}

function weaken(files: Issued): void {
  sign(files, ['rsa:512'])
}

function sign({ cert, key }: Issued, kind: readonly string[], names = NAMES): void {
  const subject = ['-subj', `/CN=hub-${others++}`, '-addext', names, '-days', '30']
  const newKey = ['-newkey', ...kind, '-nodes', '-keyout', key]
  execFileSync('openssl', ['req', '-x509', ...newKey, '-out', cert, ...subject], { stdio: 'ignore' })
  chmodSync(key, 0o600)
}

function encrypt(key: string): void {
  execFileSync('openssl', ['pkey', '-in', key, '-aes256', '-passout', 'pass:secret', '-out', `${key}.new`])
  copyFileSync(`${key}.new`, key)
}

function optionsOf({ cert, key }: Issued): string[] {
  return ['--tls-cert', cert, '--tls-key', key]
}

/** Sends a request that trusts only this certificate. */
function get(url: string, ca: Buffer, headers: Record<string, string> = {}): Promise<{ status: number | undefined }> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { ca, headers, agent: false, servername: 'localhost' }, response => {
      response.resume()
      resolve({ status: response.statusCode })
    })
    sent.on('error', reject)
    sent.end()
  })
}

async function serve(t: TestContext, files: Issued, options: readonly string[] = []) {
  const args = [CLI, '--port', '0', ...options, '--data', join(newFolder(t), 'data'), ...optionsOf(files)]
  const env = { ...process.env, NODE_COMPILE_CACHE: COMPILE_CACHE }
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'pipe'] })
  t.after(() => child.kill('SIGKILL'))
  const printed: string[] = []
  const [stdout, stderr] = [createInterface(child.stdout), createInterface(child.stderr)]
  for (const stream of [stdout, stderr]) stream.on('line', line => printed.push(line))
  const [first] = (await once(stdout, 'line')) as [string]
  const url = /https:\S+/.exec(first)?.[0] ?? ''
  const renew = async (): Promise<string> => {
    const next = Promise.race([once(stdout, 'line'), once(stderr, 'line')])
    child.kill('SIGHUP')
    return String((await next)[0])
  }
  const find = async (pattern: RegExp): Promise<string> => {
    for (;;) {
      const found = printed.map(line => pattern.exec(line)?.[1]).find(match => match !== undefined)
      if (found !== undefined) return found
      await Promise.race([once(stdout, 'line'), once(stderr, 'line')])
    }
  }
  return { url, printed, renew, find }
}
