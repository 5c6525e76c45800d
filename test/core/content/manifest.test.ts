import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it } from 'node:test'
import { MAX_MANIFEST_BYTES, type Manifest, parseManifest, verifyManifest } from '../../../src/core/content/manifest.ts'
import { ArtifactError, type DeployError } from '../../../src/core/errors.ts'
import { manifestWith } from './project-manifest.ts'

const SHA256 = hash('sha256', 'x')
const CART = { id: 'cart', version: '2.0.0', sha256: SHA256 }

function parse(more: object = {}): Manifest {
  return parseManifest(JSON.stringify(manifestWith(more)))
}

function refusalOf(act: () => unknown): DeployError {
  try {
    act()
  } catch (error) {
    assert.ok(error instanceof ArtifactError)
    return error
  }
  return assert.fail('the manifest was accepted')
}

describe('parseManifest', () => {
  it('reads a project with its plugins and extensions', () => {
    const environment = { required: ['KEY'], optional: ['REGION'] }
    assert.deepEqual(parse({ plugins: [{ ...CART, environment }], plugins_dirname: 'addons' }), {
      projectId: 'shop',
      projectName: 'The shop',
      version: '1.4.0',
      builtAt: '2026-01-02T03:04:05Z',
      contentSha256: SHA256,
      pluginsDirname: 'addons',
      parts: [
        {
          shelf: 'plugins',
          id: 'cart',
          directory: 'addons',
          version: '2.0.0',
          folder: 'addons/cart',
          sha256: SHA256,
          environment,
          source: null,
        },
        {
          shelf: 'extensions',
          id: 'search',
          directory: 'extensions',
          version: '1.4.0',
          folder: 'extensions/search',
          sha256: SHA256,
          environment: { required: [], optional: [] },
          source: null,
        },
      ],
    })
  })

  const accepted: Record<string, object> = {
    'unknown keys': { tool: 'packer 3', plugins: [{ ...CART, color: 'red' }] },
    'no extensions': { extensions: undefined },
    'nulls for optional values': {
      extensions: [{ id: 'search', sha256: null, source: null }],
      plugins: [{ ...CART, source: null, environment: null }],
      plugins_dirname: null,
    },
    'an environment with one list': { plugins: [{ ...CART, environment: { required: ['KEY'] } }] },
    'an extension without a sha256': { extensions: [{ id: 'search' }] },
    'a pre-release': { version: '1.4.0-rc.1+build.5' },
    'a time with an offset and fractions': { built_at: '2026-01-02T03:04:05.123456+00:00' },
    'an id in both directories': { extensions: [{ id: 'cart' }] },
  }
  for (const [name, more] of Object.entries(accepted)) it(`accepts ${name}`, () => assert.ok(parse(more)))

  it('converts the digits of a sha256 to lower case', () => {
    assert.equal(parse({ content_sha256: SHA256.toUpperCase() }).contentSha256, SHA256)
  })

  const required = ['format_version', 'project_id', 'project_name', 'version', 'built_at', 'plugins', 'content_sha256']
  for (const key of required) {
    it(`refuses a manifest without ${key}, and says so`, () => {
      const error = refusalOf(() => parse({ [key]: undefined }))
      assert.equal(error.code, 'invalid_manifest')
      assert.match(error.message, new RegExp(`${key} is missing`))
    })
  }

  const refused: Record<string, object> = {
    'another format': { format_version: '2' },
    'a format that is a number': { format_version: 1 },
    'a project id with a slash': { project_id: 'a/b' },
    'an empty name': { project_name: '' },
    'a name of two lines': { project_name: 'a\nb' },
    'a long name': { project_name: 'x'.repeat(257) },
    'a malformed version': { version: '../1' },
    'a version that is not semantic': { version: '1.4' },
    'a malformed time': { built_at: 'yesterday' },
    'an empty list of plugins': { plugins: [] },
    'too many plugins': { plugins: Array.from({ length: 1001 }, (_, index) => ({ ...CART, id: `p${index}` })) },
    'two plugins with one id': { plugins: [CART, { ...CART, version: '3.0.0' }] },
    'two extensions with one id': { extensions: [{ id: 'search' }, { id: 'search' }] },
    'an id that leaves its directory': { plugins: [{ ...CART, id: '../cart' }] },
    'an id in capitals': { plugins: [{ ...CART, id: 'Cart' }] },
    'a plugin without a version': { plugins: [{ ...CART, version: undefined }] },
    'an embedded plugin without a sha256': { plugins: [{ ...CART, sha256: undefined }] },
    'an embedded plugin whose sha256 is null': { plugins: [{ ...CART, sha256: null }] },
    'a short sha256': { plugins: [{ ...CART, sha256: SHA256.slice(1) }] },
    'a variable of two lines': { plugins: [{ ...CART, environment: { required: ['A\nB'] } }] },
    'a malformed content digest': { content_sha256: 'x'.repeat(64) },
    'extensions that are not a list': { extensions: {} },
    ...Object.fromEntries(
      [
        '',
        '.',
        '..',
        '/a',
        'a/',
        'a//b',
        '../a',
        'a/../b',
        'a\\b',
        '.hidden',
        '.hub-deploy/a',
        'a.b',
        'a b',
        'a'.repeat(256),
      ]
        .concat(['extensions', 'Extensions', 'extensions/a', 'deployment', 'manifest.json'])
        .map(name => [`plugins_dirname ${JSON.stringify(name)}`, { plugins_dirname: name }]),
    ),
  }
  for (const [name, more] of Object.entries(refused)) {
    it(`refuses ${name}`, () => assert.equal(refusalOf(() => parse(more)).code, 'invalid_manifest'))
  }

  for (const sha256 of [undefined, null])
    it(`says that an embedded plugin needs a sha256, if the sha256 is ${sha256}`, () => {
      const { message } = refusalOf(() => parse({ plugins: [{ ...CART, sha256 }] }))
      assert.match(message, /plugins\[0\]\.sha256 is missing: an embedded plugin needs it\. /)
    })

  const texts: Record<string, string> = {
    'a text that is not JSON': '{',
    'an empty text': '',
    'a list': '[]',
    null: 'null',
    'a text that is too large': JSON.stringify(manifestWith({ more: 'x'.repeat(MAX_MANIFEST_BYTES) })),
  }
  for (const [name, text] of Object.entries(texts)) {
    it(`refuses ${name}`, () => assert.equal(refusalOf(() => parseManifest(text)).code, 'invalid_manifest'))
  }

  it('reports all problems at once, cleaned', () => {
    const { message } = refusalOf(() =>
      parse({ version: '::error::x\n', built_at: undefined, plugins: [{ id: 'A', version: 7 }] }),
    )
    for (const part of [
      /\bversion must/,
      /built_at is/,
      /plugins\[0\]\.id/,
      /plugins\[0\]\.version/,
      /plugins\[0\]\.sha256/,
    ])
      assert.match(message, part)
    assert.doesNotMatch(message, /\n/)
  })

  it('adds no period to a question in its message', () => {
    const kind = { id: 'cart', version: '2.0.0', source: { marketplace_slug: 'cart', marketplace_kind: 'plugn' } }
    assert.match(refusalOf(() => parse({ plugins: [kind] })).message, /did you mean "plugin"\? Nothing was installed;/)
    assert.match(refusalOf(() => parseManifest('[]')).message, /is this the right file\? Nothing was installed;/)
  })

  it('lists some of a hundred problems and counts the rest', () => {
    const plugins = Array.from({ length: 90 }, (_, index) => ({ ...CART, id: `P${index}` }))
    const { message } = refusalOf(() => parse({ plugins }))
    assert.match(message, /; 80 more problems/)
    assert.ok(message.length < 4000)
  })

  it('says so when it has not counted all problems', () => {
    const plugins = Array.from({ length: 200 }, (_, index) => ({ ...CART, id: `P${index}` }))
    assert.match(refusalOf(() => parse({ plugins })).message, /; at least 90 more problems/)
  })
})

describe('verifyManifest', () => {
  const cases: [projectId: string, version: string, code: string | undefined][] = [
    ['shop', '1.4.0', undefined],
    ['shop', 'v1.4.0', undefined],
    ['shop', '1.4.1', 'version_mismatch'],
    ['shop', '1.4.0+build', 'version_mismatch'],
    ['Shop', '1.4.0', 'invalid_manifest'],
    ['shop2', '1.4.0', 'invalid_manifest'],
  ]
  for (const [projectId, version, code] of cases) {
    it(`${code === undefined ? 'accepts' : `refuses, as ${code},`} ${version} of ${projectId}`, () => {
      const verify = () => verifyManifest(parse(), { projectId, version })
      if (code === undefined) verify()
      else assert.equal(refusalOf(verify).code, code)
    })
  }
})
