import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'
import { findProxy } from '../../src/net/proxy.ts'

type Variables = Record<string, string>

/** The proxy as `scheme host port authorization`, `direct`, or the message of a refusal. */
function read(url: string, env: Variables): string {
  try {
    const proxy = findProxy(new URL(url), env)
    if (proxy === undefined) return 'direct'
    const { scheme, host, port, authorization = '-' } = proxy
    return [scheme, host, port, Buffer.from(authorization.replace('Basic ', ''), 'base64').toString() || '-'].join(' ')
  } catch (error) {
    assert.ok(error instanceof Error && 'code' in error && error.code === 'invalid_input')
    return error.message
  }
}

describe('findProxy', () => {
  const values: [value: string, found: string | RegExp][] = [
    ['http://p.test:3128', 'http p.test 3128 -'],
    ['http://p.test:3128/', 'http p.test 3128 -'],
    ['p.test:3128', 'http p.test 3128 -'],
    ['localhost:3128', 'http localhost 3128 -'],
    [' http://p.test:3128 ', 'http p.test 3128 -'],
    ['HTTP://p.test:80', 'http p.test 80 -'],
    ['http://p.test', 'http p.test 1080 -'],
    ['https://p.test', 'https p.test 443 -'],
    ['http://[::1]:3128', 'http ::1 3128 -'],
    ['http://me:secret@p.test:3128', 'http p.test 3128 me:secret'],
    ['me:secret@p.test:3128', 'http p.test 3128 me:secret'],
    ['http://me@p.test:3128', 'http p.test 3128 me:'],
    ['http://me:p%40ss%23@p.test:3128', 'http p.test 3128 me:p@ss#'],
    ['http://me:100%@p.test:3128', 'http p.test 3128 me:100%'],
    ['http://me:1%2@p.test:3128', 'http p.test 3128 me:1%2'],
    ['http://me:größe@p.test:3128', 'http p.test 3128 me:größe'],
    ['http://dom\\me:x@p.test:3128', 'http p.test 3128 dom\\me:x'],
    ['http://me:a@b@p.test:3128', 'http p.test 3128 me:a@b'],
    ['http://me:pa#ss@p.test:3128', /https_proxy is not of the form .*# is %23/],
    ['http://me:pa/ss@p.test:3128', /https_proxy is not of the form/],
    ['http://p.test:99999', /https_proxy is not of the form/],
    ['http://p.test:0', /https_proxy is not of the form/],
    ['http://', /https_proxy is not of the form/],
    ['http://p test:3128', /https_proxy is not of the form/],
    ['http://p.test:port', /https_proxy is not of the form/],
    ['socks5://p.test:1080', /https_proxy names a proxy of the kind "socks5"/],
  ]
  for (const [value, found] of values)
    it(`reads ${value}`, () => {
      const got = read('https://hub.test', { https_proxy: value })
      if (typeof found === 'string') assert.equal(got, found)
      else assert.match(got, found)
    })

  const ENVIRONMENTS: [name: string, env: Variables, found: string][] = [
    ['lower case before upper case', { https_proxy: 'a:1', HTTPS_PROXY: 'b:1' }, 'http a 1 -'],
    ['upper case', { HTTPS_PROXY: 'b:1' }, 'http b 1 -'],
    ['an empty variable as none', { https_proxy: '', HTTPS_PROXY: 'b:1' }, 'http b 1 -'],
    ['all_proxy last', { all_proxy: 'c:1', https_proxy: 'a:1' }, 'http a 1 -'],
    ['all_proxy', { ALL_PROXY: 'c:1' }, 'http c 1 -'],
    ['not the variable of the other scheme', { http_proxy: 'a:1' }, 'direct'],
  ]
  for (const [name, env, found] of ENVIRONMENTS)
    it(`uses ${name}`, () => assert.equal(read('https://hub.test', env), found))

  it('does not show the value of a variable that it refuses', () => {
    assert.doesNotMatch(read('https://hub.test', { https_proxy: 'http://me:secret#1@p.test:1' }), /secret|me:/)
  })

  for (const host of ['localhost', '127.0.0.1', '127.9.9.9', '[::1]'])
    it(`never sends a request for ${host} to a proxy`, () => {
      assert.equal(read(`https://${host}/`, { https_proxy: 'a:1' }), 'direct')
    })
})

/** curl has no port in an entry and no `*.`, and some versions read IPv6 differently, so it is not asked about these. */
const BYPASSES: [list: string, host: string, isDirect: boolean, curl?: 'other'][] = [
  ['*', 'hub.test', true],
  ['hub.test', 'hub.test', true],
  ['HUB.TEST', 'hub.test', true],
  ['hub.test', 'a.hub.test', true],
  ['hub.test', 'xhub.test', false],
  ['.hub.test', 'a.hub.test', true],
  ['.hub.test', 'hub.test', true],
  ['hub.test.', 'hub.test', true],
  ['a.test, hub.test', 'hub.test', true],
  ['a.test hub.test', 'hub.test', true],
  [' , hub.test ,', 'hub.test', true],
  ['*.hub.test', 'a.hub.test', true, 'other'],
  ['*.hub.test', 'hub.test', false],
  ['hub*', 'hub.test', false],
  ['hub.test:80', 'hub.test', true, 'other'],
  ['hub.test:81', 'hub.test', false],
  ['192.0.2.7', '192.0.2.7', true],
  ['192.0.2.0/24', '192.0.2.7', true],
  ['192.0.2.0/24', '192.0.3.7', false],
  ['192.0.2.0/24', 'hub.test', false],
  ['192.0.2.7/32', '192.0.2.7', true],
  ['0.2.7', '192.0.2.7', false],
  ['2001:db8::/32', '[2001:db8::7]', true, 'other'],
  ['2001:db8::7', '[2001:db8::7]', true],
  ['[2001:db8::7]', '[2001:db8::7]', true, 'other'],
  ['2001:db8::/32', '[2001:db9::7]', false],
]

describe('no_proxy', () => {
  for (const [list, host, isDirect] of BYPASSES)
    it(`"${list}" ${isDirect ? 'covers' : 'does not cover'} ${host}`, () => {
      const found = read(`http://${host}/`, { http_proxy: 'p.test:1', no_proxy: list })
      assert.equal(found, isDirect ? 'direct' : 'http p.test 1 -')
    })

  for (const entry of ['10.0.0.0/33', '10.0.0.0/', 'hub.test/path', '2001:db8::/129', '10.0.0.0/8/8'])
    it(`refuses ${entry}`, () => {
      const found = read('http://hub.test/', { http_proxy: 'p.test:1', NO_PROXY: `a.test,${entry}` })
      assert.match(found, /variable NO_PROXY has an entry that is not a network/)
      assert.ok(found.includes(`"${entry}"`))
    })

  const { status, stdout } = spawnSync('curl', ['--version'], { encoding: 'utf8' })
  const [, major = 0, minor = 0] = /^curl (\d+)\.(\d+)/.exec(stdout ?? '') ?? []
  // curl reads networks since 7.86.
  const isNew = status === 0 && Number(major) * 1000 + Number(minor) >= 7086
  it('is read as curl reads it', { skip: isNew ? false : 'curl 7.86 or newer is not installed' }, () => {
    for (const [list, host, isDirect, curl] of BYPASSES) {
      if (curl === 'other') continue
      const env = { PATH: process.env['PATH'], http_proxy: 'http://127.0.0.1:9', no_proxy: list }
      // It says which variables it uses before it connects; no connection can succeed.
      const args = ['-sSvg', '--connect-timeout', '0.05', `http://${host}/`]
      const { stderr } = spawnSync('curl', args, { env, encoding: 'utf8' })
      assert.equal(
        !stderr.includes('proxy env variable http_proxy'),
        isDirect,
        `no_proxy="${list}" for ${host}:\n${stderr}`,
      )
    }
  })
})
