import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, it } from 'node:test'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { ArtifactError } from '../../../src/core/errors.ts'
import { PLUGIN_YAML_LIMITS } from '../../../src/core/identifiers.ts'
import { VERSION_SCALARS } from './version-scalars.ts'

const NO_NEEDS = { frameworkVersion: undefined, requires: [], variables: [] }
const TRUE_IN_PYTHON: readonly string[] = [
  ...[
    'true',
    'True',
    'yes',
    'On',
    '"true"',
    '"false"',
    "'no'",
    '!!str no',
    '1',
    '-1',
    '0.1',
    '0o0',
    '0e0',
    '1:00',
    'y',
    'n',
  ],
  ...['nO', 'nULL', 'x', '2024-01-01', '.nan', '.inf', '[0]', '{a: 0}', '"0"', '" "', '|\n    x', '&a 1'],
]
const FALSE_IN_PYTHON: readonly string[] = [
  ...['', '~', 'null', 'Null', 'false', 'False', 'no', 'NO', 'off', 'Off', '""', "''", '[]', '{}', '!!str', '!!str ""'],
  ...['0', '00', '+0', '-0', '0_0', '0x0', '0b0', '0.0', '-0.', '.0', '0.0e+3', '0:00.0', '&a 0'],
]
const QUOTE_IT = { code: 'invalid_manifest', message: / \(quote it\), / }

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
      executionMode: 'Trusted',
      entryPoint: 'src/app.py',
      environment: { required: ['A', 'B_2'], optional: ['C'] },
      envFile: undefined,
      needs: NO_NEEDS,
    })
  })

  it('returns only empty lists for an empty map', () => {
    const { environment, needs, ...rest } = parsePluginYaml('{}')
    assert.deepEqual([environment, needs], [{ required: [], optional: [] }, NO_NEEDS])
    assert.ok(Object.values(rest).every(value => value === undefined))
  })

  for (const [scalar, version] of VERSION_SCALARS) {
    for (const text of [`version: ${scalar}\n`, `first: &w ${scalar.replace('&v ', '')}\nversion: *w\n`]) {
      if (version === undefined)
        it(`refuses ${JSON.stringify(text)}`, () => assert.throws(() => parsePluginYaml(text), QUOTE_IT))
      else it(`reads ${version} in ${JSON.stringify(text)}`, () => assert.equal(parsePluginYaml(text).version, version))
    }
  }

  it('reads each version as PyYAML does, and refuses what PyYAML reads differently', t => {
    const read =
      'import json, sys, yaml; print(json.dumps([str(yaml.safe_load(text)["version"]) for text in json.load(sys.stdin)]))'
    const accepted = VERSION_SCALARS.filter(([, version]) => version !== undefined)
    const input = JSON.stringify(accepted.map(([scalar]) => `version: ${scalar}\n`))
    if (spawnSync('python3', ['-c', 'import yaml']).status !== 0) return t.skip('python3 with PyYAML is not installed')
    const { status, stdout, stderr } = spawnSync('python3', ['-c', read], { input, encoding: 'utf8' })
    assert.equal(status, 0, stderr)
    assert.deepEqual(
      JSON.parse(stdout),
      accepted.map(([, version]) => version),
    )
  })

  for (const text of [
    ...['7', '1_0', '010', '~', '', 'on', '2024-01-01', '[a]'].map(name => `name: ${name}\n`),
    ...['{version}', '? version\n', 'entry_point: 1_0\n', 'execution_mode: off\n'],
    'environment: {required: [A, NO]}\n',
    'list: &l [OFF]\nenvironment: {optional: *l}\n',
  ])
    it(`refuses ${JSON.stringify(text)}`, () => assert.throws(() => parsePluginYaml(text), QUOTE_IT))

  it('names the value to quote', () =>
    assert.throws(() => parsePluginYaml('version: 010\n'), {
      message:
        "The artifact's plugin.yaml has a value at version that is not text for every YAML parser, nor a plain number of at most 15 digits (quote it), so the artifact was refused. The publisher must fix plugin.yaml.",
    }))

  for (const written of [...TRUE_IN_PYTHON, ...FALSE_IN_PYTHON]) {
    const envFile = TRUE_IN_PYTHON.includes(written) ? '.env' : undefined
    it(`reads envconfiguration.inject: ${written} as ${envFile !== undefined}`, () =>
      assert.equal(parsePluginYaml(`envconfiguration:\n  inject: ${written}\n`).envFile, envFile))
  }

  it('finds the same values true as PyYAML and Python', t => {
    if (spawnSync('python3', ['-c', 'import yaml']).status !== 0) return t.skip('python3 with PyYAML is not installed')
    const read =
      'import json, sys, yaml; print(json.dumps([bool(yaml.safe_load(text)["x"]) for text in json.load(sys.stdin)]))'
    const input = JSON.stringify([...TRUE_IN_PYTHON, ...FALSE_IN_PYTHON].map(written => `x: ${written}\n`))
    const { stdout, stderr } = spawnSync('python3', ['-c', read], { input, encoding: 'utf8' })
    assert.deepEqual(JSON.parse(stdout || stderr), [
      ...TRUE_IN_PYTHON.map(() => true),
      ...FALSE_IN_PYTHON.map(() => false),
    ])
  })

  const envFiles = {
    'settings.env': 'settings.env',
    './etc//app.env': 'etc/app.env',
    '"a b"': 'a b',
    'src/main.env': 'src/main.env',
  }
  for (const [written, envFile] of Object.entries(envFiles)) {
    it(`reads env_file: ${written}`, () =>
      assert.equal(parsePluginYaml(`envconfiguration: {inject: 1, env_file: ${written}}\n`).envFile, envFile))
  }

  for (const written of [
    '/etc/x',
    '../x',
    'a/../../x',
    '.',
    '""',
    'etc/',
    '"a\\\\b"',
    '"a\\nb"',
    'src',
    './src/main.py',
    'plugin.yaml',
    'plugin.sig',
  ])
    it(`refuses env_file: ${written}, but only if the settings are injected`, () => {
      const text = `envconfiguration: {inject: true, env_file: ${written}}\n`
      assert.throws(() => parsePluginYaml(text), {
        code: 'not_a_plugin',
        message: /unexpected envconfiguration\.env_file/,
      })
      assert.equal(parsePluginYaml(text.replace('true', 'false')).envFile, undefined)
    })

  for (const written of ['~', '1.0', '[a]', 'no'])
    it(`refuses env_file: ${written}, which is not text`, () =>
      assert.throws(() => parsePluginYaml(`envconfiguration: {inject: true, env_file: ${written}}\n`), QUOTE_IT))

  it('reads what the host framework needs, and ignores what has another form', () => {
    const text = `framework_version: ">=2.0"\nrequires: [a, {name: b, version: 2}, {version: 1}, 7]\nenv: {A: "\${X}", B: "x\${Y}", C: 1, D: "\${X}"}\n`
    assert.deepEqual(parsePluginYaml(text).needs, {
      frameworkVersion: '>=2.0',
      requires: [
        { name: 'a', version: undefined },
        { name: 'b', version: '2' },
      ],
      variables: ['X'],
    })
    assert.deepEqual(parsePluginYaml('framework_version: [2]\nrequires: a\nenv: [A]\n').needs, NO_NEEDS)
  })

  it('injects nothing if envconfiguration is not a map with the key inject', () => {
    for (const written of ['true', '[inject]', 'null', '{}', '{__proto__: {inject: true}}'])
      assert.equal(parsePluginYaml(`envconfiguration: ${written}\n`).envFile, undefined)
  })

  it('reads aliases and any one-line name of a variable', () => {
    const text = 'name: &n one\nentry_point: *n\nenvironment: {required: ["A=B", my-key], optional: [{a: &x é}, *x]}\n'
    assert.throws(() => parsePluginYaml(text), { code: 'not_a_plugin' })
    const parsed = parsePluginYaml(text.replace('{a: &x é}, *x', '&x é, *x'))
    assert.deepEqual([parsed.name, parsed.entryPoint], ['one', 'one'])
    assert.deepEqual(parsed.environment, { required: ['A=B', 'my-key'], optional: ['é', 'é'] })
  })

  const refused = {
    'an empty file': '',
    'a list': '- name: x\n',
    'a plain text': 'hello',
    'broken YAML': 'name: [1\n',
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
