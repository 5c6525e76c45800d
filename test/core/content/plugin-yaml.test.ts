import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { ArtifactError } from '../../../src/core/errors.ts'
import { PLUGIN_YAML_LIMITS } from '../../../src/core/limits.ts'

describe('parsePluginYaml', () => {
  it('reads the keys that it knows and ignores the rest', () => {
    const text = `name: greeter
version: "1.4.0"
execution_mode: Trusted
entry_point: src/app.py
environment: {required: [A, B_2], optional: [C], other: 1}
unknown: {deep: [1, 2]}
`
    assert.deepEqual(parsePluginYaml(text), {
      name: 'greeter',
      version: '1.4.0',
      versionAsWritten: '1.4.0',
      executionMode: 'Trusted',
      entryPoint: 'src/app.py',
      environment: { required: ['A', 'B_2'], optional: ['C'] },
      injectsEnv: false,
    })
  })

  it('returns only empty lists for an empty map', () => {
    const { environment, injectsEnv, ...rest } = parsePluginYaml('{}')
    assert.deepEqual([environment, injectsEnv], [{ required: [], optional: [] }, false])
    assert.ok(Object.values(rest).every(value => value === undefined))
  })

  const versions = [
    ['1.0', '1.0', '1.0'],
    ['1.10', '1.1', '1.10'],
    ['"1.10"', '1.10', '1.10'],
    ["'1.0'", '1.0', '1.0'],
    ['2', '2', '2'],
    ['1.4.0', '1.4.0', '1.4.0'],
    ['v1.2', 'v1.2', 'v1.2'],
    ['1.50', '1.5', '1.50'],
    ['*v\nother: 1', '1.0', '1.0'],
  ] as const
  for (const [written, version, versionAsWritten] of versions) {
    it(`reads version: ${written} as ${version}`, () => {
      const parsed = parsePluginYaml(`first: &v 1.0\nversion: ${written}\n`)
      assert.deepEqual([parsed.version, parsed.versionAsWritten], [version, versionAsWritten])
    })
  }

  const injecting = { true: true, yes: true, On: true, false: false, no: false, 1: false, '[]': false, '"x"': false }
  for (const [written, expected] of Object.entries(injecting)) {
    it(`reads envconfiguration.inject: ${written} as ${expected}`, () =>
      assert.equal(parsePluginYaml(`envconfiguration: {inject: ${written}}\n`).injectsEnv, expected))
  }

  it('injects nothing if envconfiguration is not a map with the key inject', () => {
    for (const written of ['true', '[inject]', 'null', '{}', '{__proto__: {inject: true}}'])
      assert.equal(parsePluginYaml(`envconfiguration: ${written}\n`).injectsEnv, false)
  })

  it('reads aliases and any one-line name of a variable', () => {
    const text = 'name: &n one\nentry_point: *n\nenvironment: {required: ["A=B", my-key], optional: [{a: &x é}, *x]}\n'
    assert.throws(() => parsePluginYaml(text))
    const parsed = parsePluginYaml(text.replace('{a: &x é}, *x', '&x é, *x'))
    assert.deepEqual([parsed.name, parsed.entryPoint], ['one', 'one'])
    assert.deepEqual(parsed.environment, { required: ['A=B', 'my-key'], optional: ['é', 'é'] })
  })

  const refused = {
    'an empty file': '',
    'a list': '- name: x\n',
    'a plain text': 'hello',
    'broken YAML': 'name: [1\n',
    'a list as version': 'version: [1]\n',
    'a boolean as version': 'version: true\n',
    'a number as execution_mode': 'execution_mode: 1\n',
    'an empty entry_point': 'entry_point: ""\n',
    'a list as environment': 'environment: [A]\n',
    'a variable name with a line break': 'environment: {required: ["A\\nB"]}\n',
  }
  for (const [name, text] of Object.entries(refused)) {
    it(`refuses ${name}`, () => {
      assert.throws(
        () => parsePluginYaml(text),
        error => error instanceof ArtifactError && error.code === 'not_a_plugin',
      )
    })
  }

  it('names the key that has an unexpected form', () =>
    assert.throws(() => parsePluginYaml('environment: {required: [1]}\n'), {
      message: /has an unexpected environment\.required\.0 \(environment must be a map with the lists/,
    }))

  const bomb = Array.from({ length: 60 }, (_, n) => `a${n + 1}: &a${n + 1} [*a${n},*a${n}]\n`).join('')
  const ambiguous = {
    'a repeated key, whose first value some readers take': 'execution_mode: safe\nexecution_mode: trusted\n',
    'a repeated key in a nested map': 'environment: {required: [A], required: []}\n',
    'a repeated key in another style': 'name: a\n"name": b\n',
    'a merge key': 'base: &b {execution_mode: trusted}\n<<: *b\n',
    'a merge key with a list': 'base: &b {execution_mode: trusted}\n<<: [*b]\n',
    'a merge key in a nested map': 'environment:\n  <<: {required: [A]}\n',
    'a merge key by its tag': '!!merge x: {execution_mode: trusted}\n',
    'a merge key by the tag of its directive':
      '%TAG !m! tag:yaml.org,2002:\n---\n!m!merge x: {execution_mode: trusted}\n',
    'a merge key of YAML 1.1': '%YAML 1.1\n---\n<<: {execution_mode: trusted}\n',
    'an alias as a key': 'a: &k execution_mode\n*k : trusted\n',
    'a list as a key': '? [a]\n: 1\n',
    'NEL, which ends a line in YAML 1.1': '# hi\u0085execution_mode: trusted\n',
    'U+2028, which ends a line in YAML 1.1': '# hi\u2028execution_mode: trusted\n',
    'U+2029, which ends a line in YAML 1.1': 'name: a\u2029execution_mode: trusted\n',
    'a carriage return, which ends a line for other readers': '# hi\rexecution_mode: trusted\n',
    'a byte order mark inside the text, which only some readers skip': '# hi\n\ufeffexecution_mode: trusted\n',
    NUL: 'name: a\n\0',
    'bytes that were not UTF-8': 'name: \ufffd\n',
    'more bytes than the limit': `name: a\n#${'x'.repeat(PLUGIN_YAML_LIMITS.bytes)}`,
    'more words and signs than the limit': '- 1\n'.repeat(8000),
    'too many levels': `a: ${'['.repeat(40)}${']'.repeat(40)}\n`,
    'too many mistakes': `a: [${','.repeat(200)}]\n`,
    'an alias bomb': `a0: &a0 [x,x]\n${bomb}name: x\n`,
    'an alias bomb of few aliases':
      'a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c]\n',
  }
  for (const [name, text] of Object.entries(ambiguous)) {
    it(`refuses ${name}`, () => {
      assert.throws(
        () => parsePluginYaml(text),
        error => error instanceof ArtifactError && error.code === 'invalid_manifest',
      )
    })
  }

  it('accepts a text that all readers read alike', () => {
    const text = '\ufeffname: "a\\u0085b"\r\n"<<": 1\r\nports: {8080: web, x: é}\r\nbig: |\r\n  text\r\n'
    assert.equal(parsePluginYaml(text).name, 'a\u0085b')
  })

  it('accepts a file of 32 KiB', () => {
    const setting = '  - name: SETTING\n    description: Where the greeter listens\n    default: 8080\n'
    const text = `name: a\nsettings:\n${setting.repeat(Math.floor((PLUGIN_YAML_LIMITS.bytes - 18) / setting.length))}`
    assert.equal(parsePluginYaml(text).name, 'a')
  })
})
