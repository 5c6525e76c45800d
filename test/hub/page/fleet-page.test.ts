import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import { request } from 'node:http'
import { describe, it } from 'node:test'
import { isLoopbackAuthority } from '../../../hub/http/connections.ts'
import { createProject } from '../../../hub/project/catalogue.ts'
import { recordProjectReport } from '../../../hub/project/reports.ts'
import { ADMIN_TOKEN, type HubUnderTest, runHub } from '../running-hub.ts'
import { NOW, report } from '../stored-reports.ts'

const HOSTILE = `<script>alert('x')</script>"&`
const ESCAPED = '&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;'

describe('the fleet page', () => {
  it('shows the running versions, the last attempt with the first sentence of its cause, and the catalogue', async t => {
    const hub = await runHub(t, { now: () => NOW })
    await hub.publish({ name: 'Hello world' })
    report(hub.store, { host_id: 'host-1', version: '1.0.0', hoursAgo: 72 })
    report(hub.store, {
      host_id: 'host-1',
      version: '1.1.0',
      status: 'rolled_back',
      error_message: 'step ok: app.sh\nsays no to 127.0.0.1:8799. It was started.',
    })
    const shown = await textOf(hub, '/')
    for (const text of [
      '1 host · 1 needs attention · 1 on 1.0.0',
      'host-1 hello 1.0.0 3 days ago',
      '1.1.0 was rolled back 1 h ago : step ok: app.sh says no to 127.0.0.1:8799.',
      'Hello world plugin hello 1.0.0',
    ])
      assert.ok(shown.includes(text), `${text}\n${shown}`)
    assert.ok(!shown.includes('It was started'))
  })

  it('shortens a digest in a cause', async t => {
    const hub = await runHub(t, { now: () => NOW })
    const error_message = `The artifact (sha256 ${'0123456789abcdef'.repeat(4)}) is not signed. It must be.`
    report(hub.store, { version: '1.1.0', status: 'failed', error_message })
    assert.match(await textOf(hub, '/'), /The artifact \(sha256 01234567…cdef\) is not signed\./)
  })

  it('has the full time next to each relative time', async t => {
    const hub = await runHub(t, { now: () => NOW })
    report(hub.store, { hoursAgo: 30 })
    const page = await (await hub.call('/')).text()
    assert.match(page, /<time datetime="2026-01-30T06:00:00.000Z" title="2026-01-30 06:00:00 UTC">1 day ago<\/time>/)
  })

  for (const [hoursAgo, text] of [
    [0, 'just now'],
    [-0.05, 'just now'],
    [0.5, '30 min ago'],
    [23.9, '23 h ago'],
    [24 * 30, '30 days ago'],
    [24 * 31, '31 Dec 2025'],
    [-1, '31 Jan 2026, by a clock that is ahead'],
  ] as const) {
    it(`says "${text}" for an event ${hoursAgo} hours ago`, async t => {
      const hub = await runHub(t, { now: () => NOW })
      report(hub.store, { hoursAgo })
      assert.ok((await textOf(hub, '/')).includes(` ${text} `))
    })
  }

  it('does not claim that the last success runs after a failure', async t => {
    const hub = await runHub(t, { now: () => NOW })
    report(hub.store, { hoursAgo: 48 })
    report(hub.store, { version: '1.1.0', status: 'failed' })
    assert.ok((await textOf(hub, '/')).includes('1.0.0 last success 2 days ago'))
  })

  it('shortens digests, and shows them in full in a title', async t => {
    const hub = await runHub(t)
    const digest = 'e5193da1'.repeat(8)
    report(hub.store, { version: digest })
    const page = await (await hub.call('/')).text()
    assert.ok(page.includes(`<abbr title="${digest}" class="digest">e5193da1…3da1</abbr>`))
  })

  it('names owners if there are several', async t => {
    const hub = await runHub(t)
    report(hub.store, { owner: 'alice' })
    assert.ok(!(await textOf(hub, '/')).includes('alice'))
    report(hub.store, { owner: 'bob' })
    assert.match(await textOf(hub, '/'), /host owner: alice .* host owner: bob /)
    // The hosts of two owners may be the same machine, so the page says how it counts hosts.
    const page = await (await hub.call('/')).text()
    assert.match(
      page,
      /<strong>2<\/strong> hosts <abbr title="[^"]+ counts once for each owner">of 2 owners<\/abbr> · /,
    )
  })

  it('marks a name that the hub never published, and does not count it as a plugin or service', async t => {
    const hub = await runHub(t)
    await hub.publish()
    report(hub.store, {})
    report(hub.store, { slug: 'helo' })
    const shown = await textOf(hub, '/')
    assert.match(shown, /1 host · none needs attention · 1 unknown name · 1 on 1\.0\.0/)
    assert.match(shown, /helo \? unknown to this hub/)
  })

  it('keeps the filter in the links to other pages', async t => {
    const hub = await runHub(t)
    hub.store.db.exec('PRAGMA synchronous = OFF')
    for (let n = 0; n < 201; n++) report(hub.store, { host_id: `h ${n}`, status: 'failed' })
    const page = await (await hub.call('/?q=h+%26&attention=1&page=2')).text()
    assert.match(page, /No host matches/)
    const second = await (await hub.call('/?q=h+&attention=1&page=2')).text()
    assert.match(second, /101–200 of 201/)
    assert.ok(second.includes('<a href="?q=h+&amp;attention=1"><span aria-hidden="true">←</span> Previous</a>'))
    assert.ok(second.includes('<a href="?q=h+&amp;attention=1&amp;page=3">Next'))
    assert.match(second, /<input type="search" name="q" value="h "/)
    assert.match(second, /name="attention" value="1" checked/)
  })

  for (const query of ['?page=0', '?page=-1', '?page=x', '?page=1e99', '?q=%00', '?q=%ff', '?q=a&q=b', '?attention=2'])
    it(`answers ${query}, a query that none of its links has`, async t => {
      const hub = await runHub(t)
      report(hub.store, {})
      assert.equal((await hub.call(`/${query}`)).status, 200)
    })

  it('shows the running version of a project, and its last attempt if that failed', async t => {
    const hub = await runHub(t, { now: () => NOW })
    const { project_id } = createProject(hub.store, 'Shop')
    for (const [version, status, completed_at] of [
      ['1.4.0', 'success', '2026-01-30T12:00:00Z'],
      ['1.5.0', 'failed', '2026-01-31T11:00:00Z'],
    ] as const) {
      const known = { project_id, deployment_id: randomUUID(), plugins: [{ id: 'cart', version: '1.0.0' }] }
      recordProjectReport(hub.store, { ...known, version, status, started_at: completed_at, completed_at }, NOW)
    }
    const shown = await textOf(hub, '/')
    assert.match(shown, new RegExp(`Shop ${project_id} none 1\\.4\\.0 1 day ago 1\\.5\\.0 failed 1 h ago`))
  })

  it('counts the projects that it leaves out, but names them in the latest deployments', async t => {
    const hub = await runHub(t)
    hub.store.db.exec('PRAGMA synchronous = OFF')
    const ids = Array.from({ length: 150 }, (_, n) => createProject(hub.store, `Shop ${n}`).project_id)
    const at = new Date(NOW).toISOString()
    const known = { version: '1.0.0', status: 'success' as const, started_at: at, completed_at: at, plugins: [] }
    for (const project_id of ids)
      recordProjectReport(hub.store, { ...known, project_id, deployment_id: randomUUID() }, NOW)
    const page = await (await hub.call('/')).text()
    assert.match(page, /and 50 more: see <code>npm run hub -- project list/)
    for (const id of ids) assert.ok(!page.includes(`<bdi>${id}</bdi>`))
  })

  it('says so when it is empty', async t => {
    const hub = await runHub(t)
    const page = await (await hub.call('/')).text()
    assert.match(page, /No deployment of a plugin or service has been reported yet\./)
    assert.match(page, /No plugin or service has been published yet\./)
  })

  it('escapes all data', async t => {
    const hub = await runHub(t)
    await hub.publish({ name: HOSTILE })
    report(hub.store, { host_id: HOSTILE, error_message: HOSTILE, status: 'failed', owner: HOSTILE })
    report(hub.store, { host_id: 'other' })
    const page = await (await hub.call(`/?q=${encodeURIComponent(HOSTILE)}`)).text()
    assert.equal(page.includes('<script'), false)
    assert.equal(page.split(ESCAPED).length - 1, 5)
  })

  it('makes characters that hide or reorder text visible', async t => {
    const hub = await runHub(t)
    const error_message = 'no \u202eevil\u001b[31m\u3164'
    report(hub.store, { host_id: 'app\u202e1\u200b', status: 'failed', error_message })
    const page = await (await hub.call('/')).text()
    assert.ok(page.includes('<bdi>app‹U+202E›1‹U+200B›</bdi>'))
    assert.ok(page.includes('<bdi>no ‹U+202E›evil [31m‹U+3164›</bdi>'))
  })

  it('stays small, whatever hosts report', async t => {
    const hub = await runHub(t)
    const long = { version: 'v'.repeat(128), slug: 's'.repeat(128), error_message: '&'.repeat(20_000) }
    hub.store.db.exec('PRAGMA synchronous = OFF')
    for (let n = 0; n < 150; n++) report(hub.store, { ...long, host_id: '&'.repeat(252) + n, status: 'failed' })
    const page = await (await hub.call('/')).text()
    assert.ok(page.length < 450_000, `${page.length}`)
  })

  it('allows only its own style sheet', async t => {
    const hub = await runHub(t)
    const response = await hub.call('/')
    const policy = response.headers.get('content-security-policy') ?? ''
    const style = /<style>(.*)<\/style>/s.exec(await response.text())?.[1] ?? ''
    const digest = createHash('sha256').update(style).digest('base64')
    for (const rule of ["default-src 'none'", "form-action 'self'", "frame-ancestors 'none'", "base-uri 'none'"])
      assert.ok(policy.split('; ').includes(rule), rule)
    assert.ok(policy.includes(`style-src 'sha256-${digest}'`))
    assert.equal(policy.includes('unsafe'), false)
  })

  it('needs no token on the machine itself under a loopback name, but needs one under any other name', async t => {
    const hub = await runHub(t)
    assert.equal(await statusUnderName(hub.url, 'localhost:1234'), 200)
    assert.equal(await statusUnderName(hub.url, 'attacker.example'), 401)
  })

  it('needs the token when other machines can reach it, even under a loopback name', async t => {
    const hub = await runHub(t, { host: '0.0.0.0' })
    assert.equal(await statusUnderName(hub.url, 'localhost'), 401)
  })

  it('asks for the admin token as a password, even if the password is empty', async t => {
    const hub = await runHub(t, { host: '0.0.0.0' })
    for (const authorization of [basic('admin'), basic('admin:'), 'Basic', 'Negotiate abc']) {
      const { error } = (await (await hub.call('/', { headers: { authorization } })).json()) as { error: string }
      assert.equal(error, 'This page needs the admin token: enter it as the password, with any user name.')
    }
  })

  for (const [name, authorization, status] of [
    ['a missing token', undefined, 401],
    ['a wrong token', 'Bearer wrong-token-of-the-tests', 401],
    ['a wrong password', basic('admin:wrong'), 401],
    ['a missing password', basic('admin'), 401],
    ['the admin token', `Bearer ${ADMIN_TOKEN}`, 200],
    ['the admin token as a password', basic(`anybody:${ADMIN_TOKEN}`), 200],
  ] as const) {
    it(`answers ${status} to ${name} when other machines can reach it`, async t => {
      const hub = await runHub(t, { host: '0.0.0.0' })
      const response = await hub.call('/', authorization === undefined ? {} : { headers: { authorization } })
      assert.equal(response.status, status)
      assert.equal(response.headers.has('www-authenticate'), true)
      if (authorization === undefined) assert.match(await response.text(), /enter it as the password/)
    })
  }
})

describe('a Host header', () => {
  for (const authority of ['localhost', 'LOCALHOST:80', '127.0.0.1:8787', '127.1.2.3', '[::1]', '[::1]:8787']) {
    it(`of ${authority} means this machine`, () => assert.equal(isLoopbackAuthority(authority), true))
  }

  for (const authority of [
    undefined,
    '',
    'example.com',
    'localhost.example.com',
    '127.0.0.1.example.com',
    '128.0.0.1',
    '0.0.0.0',
    '[::2]',
    'localhost:80:80',
    'example.com@localhost',
  ]) {
    it(`of ${authority} does not mean this machine`, () => assert.equal(isLoopbackAuthority(authority), false))
  }
})

/** The visible text of a page, with one space between words. */
async function textOf(hub: HubUnderTest, path: string): Promise<string> {
  const page = await (await hub.call(path)).text()
  const body = page.slice(page.indexOf('<body>')).replace(/<span class="hidden">.*?<\/span>/g, '')
  return body
    .replace(/<\/?(?:strong|b|a|i)\b[^>]*>/g, '')
    .replace(/<[^>]*>/g, ' ')
    .replace(/\s+/g, ' ')
}

function basic(credentials: string): string {
  return `Basic ${Buffer.from(credentials).toString('base64')}`
}

function statusUnderName(url: string, host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { headers: { host }, agent: false }, response => {
      response.resume()
      resolve(response.statusCode)
    })
    sent.on('error', reject)
    sent.end()
  })
}
