import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it } from 'node:test'
import { parseManifest } from '../../../src/core/content/manifest.ts'
import { externalSourceSchema, isFixed, parseGitTokens, parseSlugKeys } from '../../../src/core/content/source.ts'
import { DeployError } from '../../../src/core/errors.ts'
import { manifestWith } from './project-manifest.ts'

const COMMIT = 'a1'.repeat(20)
const URL = 'https://git.example.org/team/pay.git'
const SHA256 = hash('sha256', 'a tree')

/** The source of the manifest's first plugin, or the code of the error that refuses the manifest. */
function read(source: unknown, more: object = {}): unknown {
  const plugins = [{ id: 'pay', version: '1.0.0', source, ...more }]
  try {
    return parseManifest(JSON.stringify(manifestWith({ plugins }))).parts[0]?.source
  } catch (error) {
    assert.ok(error instanceof DeployError)
    return error.code
  }
}

const git = (more: object = {}): object => ({ url: URL, ref: COMMIT, ...more })

describe('the source of a part', () => {
  it('is the latest plugin of a marketplace by default', () => {
    const all = { from: 'marketplace', slug: 'pay', version: 'latest', kind: 'plugin', subdirectory: undefined }
    assert.deepEqual(read({ marketplace_slug: 'pay' }), all)
    const named = {
      marketplace_slug: 'pay',
      marketplace_version: '2.0.0',
      marketplace_kind: 'service',
      subdirectory: 'a/b/',
    }
    assert.deepEqual(read(named), { ...all, version: '2.0.0', kind: 'service', subdirectory: 'a/b' })
  })

  it('may have every key, with null for no value', () => {
    const nulls = {
      marketplace_slug: null,
      marketplace_version: 'latest',
      marketplace_kind: 'plugin',
      subdirectory: null,
    }
    assert.deepEqual(read({ ...nulls, ...git() }), { from: 'git', url: URL, ref: COMMIT, subdirectory: undefined })
    assert.equal(read(null, { sha256: SHA256 }), null)
  })

  it('has its commit and its URL normalized', () => {
    assert.partialDeepStrictEqual(
      read(git({ ref: COMMIT.toUpperCase(), url: 'HTTPS://Git.Example.org:443/a/../team/pay.git' })),
      {
        url: URL,
        ref: COMMIT,
      },
    )
  })

  for (const ref of [COMMIT, 'b2'.repeat(32)])
    it(`is pinned by a commit of ${ref.length} digits`, () => assert.ok(read(git({ ref }))))

  for (const ref of ['main', 'v1.0.0', 'release/2', COMMIT.slice(1), `${COMMIT}0`, 'HEAD', 'refs/heads/main']) {
    it(`is not pinned by ${ref}, unless the manifest has the digest of its tree`, () => {
      assert.equal(read(git({ ref })), 'unpinned_source')
      assert.partialDeepStrictEqual(read(git({ ref }), { sha256: SHA256 }), { ref })
    })
  }

  const refused: Record<string, unknown> = {
    'a text': URL,
    'an empty object': {},
    'a hub and a repository': { marketplace_slug: 'pay', ...git() },
    'a repository without a ref': { url: URL },
    'a hub and a ref': { marketplace_slug: 'pay', ref: COMMIT },
    'a repository and a version': git({ marketplace_version: '1.0.0' }),
    'a repository and a kind': git({ marketplace_kind: 'service' }),
    'a url that is too long once it is escaped': git({ url: `https://git.example.org/${'\u00e9'.repeat(400)}` }),
    'a slug that leaves its directory': { marketplace_slug: '../pay' },
    'an unknown kind': { marketplace_slug: 'pay', marketplace_kind: 'project' },
    ...Object.fromEntries(
      [
        ...[
          'http://git.example.org/x',
          'ssh://git@git.example.org/x',
          'git@git.example.org:x',
          'git://git.example.org/x',
        ],
        ...[
          'file:///etc',
          '/etc',
          'ext::sh -c id',
          'ext::sh%20-c%20id',
          'fd::17',
          '--upload-pack=id',
          '-oProxyCommand=id',
        ],
        ...['https://user:password@git.example.org/x', 'https://token@git.example.org/x', 'https://@git.example.org/x'],
        ...[
          'https:///x',
          'https://git.example.org/x?y',
          'https://git.example.org/x#y',
          'https://git.example.org\\@evil/x',
        ],
        ...[
          'https://git.example.org/x\nhttp.proxy=evil',
          'https::https://git.example.org',
          'transport::https://git.example.org',
        ],
      ].map(url => [`the url ${JSON.stringify(url)}`, git({ url })]),
    ),
    ...Object.fromEntries(
      [
        ...['--upload-pack=touch /tmp/x', '-x', '+main', ':main', 'main:refs/heads/x', 'a..b', 'main^{tree}', 'main~1'],
        ...[
          '@',
          'main@{1}',
          'a b',
          'a\nb',
          '*',
          'refs/*',
          'a//b',
          '/a',
          'a/',
          'a.lock',
          '.a',
          'a/.b',
          'a\\b',
          '',
          'x'.repeat(256),
        ],
      ].map(ref => [`the ref ${JSON.stringify(ref)}`, git({ ref })]),
    ),
    ...Object.fromEntries(
      ['..', '../x', 'a/../b', 'a/..', '/etc', './a', '.', 'a//b', 'a\\b', 'a\nb', 'x'.repeat(5000)].map(
        subdirectory => [`the subdirectory ${JSON.stringify(subdirectory).slice(0, 20)}`, git({ subdirectory })],
      ),
    ),
  }
  for (const [what, source] of Object.entries(refused)) {
    it(`may not be ${what}`, () => assert.equal(read(source, { sha256: SHA256 }), 'invalid_manifest'))
  }

  it('is fixed unless it may supply a different tree later', () => {
    const sources = [
      git(),
      git({ ref: 'main' }),
      { marketplace_slug: 'x', marketplace_version: '1' },
      { marketplace_slug: 'x' },
    ]
    assert.deepEqual(
      sources.map(source => isFixed(externalSourceSchema.parse(source))),
      [true, true, true, false],
    )
  })
})

describe('parseGitTokens', () => {
  it('finds each token by its host, or by its host and port, as a URL names them', () => {
    const { tokens, problems } = parseGitTokens(
      '# mine\nGit.Example.org=a=b\n\n  git.example.org:8443 = c\r\nx.org:443=d\n[::1]=e',
    )
    assert.deepEqual(problems, [])
    assert.deepEqual(Object.fromEntries(tokens), {
      'git.example.org': 'a=b',
      'git.example.org:8443': 'c',
      'x.org': 'd',
      '[::1]': 'e',
    })
  })

  for (const line of [
    'secret',
    '=secret',
    'https://x.org=secret',
    'x.org/path=secret',
    'user@x.org=secret',
    'x.org=',
    'x.org=sec ret',
    'x.org=s\u00e9cret',
    'x.org=secret\u0007',
    '*.org=secret',
    'x.org:99999=secret',
  ]) {
    it(`refuses ${JSON.stringify(line)} and never shows the secret`, () => {
      const { tokens, problems } = parseGitTokens(`a.org=1\n${line}`)
      assert.equal(tokens.size, 1)
      assert.equal(problems.length, 1)
      assert.match(problems[0] ?? '', /line 2/)
      assert.doesNotMatch(problems[0] ?? '', /s[e\u00e9]c/)
    })
  }

  it('refuses a host that is named twice', () =>
    assert.equal(parseGitTokens('x.org=a\nX.org:443=b').problems.length, 1))
})

describe('parseSlugKeys', () => {
  it('finds each key by its slug', () => {
    const { tokens, problems } = parseSlugKeys('# mine\npayments = a=b\r\n\nled.ger_2=c\n')
    assert.deepEqual([Object.fromEntries(tokens), problems], [{ payments: 'a=b', 'led.ger_2': 'c' }, []])
  })

  for (const line of ['secret', '=secret', 'Payments=secret', '../x=secret', 'x=', 'x=sec ret', 'a=secret'])
    it(`refuses ${JSON.stringify(line)} and never shows the key`, () => {
      const { tokens, problems } = parseSlugKeys(`a=1\n${line}`)
      assert.deepEqual([tokens.size, problems.length], [1, 1])
      assert.match(problems[0] ?? '', /line 2/)
      assert.doesNotMatch(problems[0] ?? '', /sec/)
    })
})
