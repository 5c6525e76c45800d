import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { ArtifactError } from '../../../src/core/errors.ts'

describe('parsePluginYaml', () => {
  it('reads what we need and ignores the rest', () => {
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
    })
  })

  it('has nothing but empty lists for an empty mapping', () => {
    const { environment, ...rest } = parsePluginYaml('{}')
    assert.deepEqual(environment, { required: [], optional: [] })
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
    ['1.4\nversion: 1.10', '1.1', '1.10'],
    ['*v\nother: 1', '1.0', '1.0'],
  ] as const
  for (const [written, version, versionAsWritten] of versions) {
    it(`reads version: ${written} as ${version}`, () => {
      const parsed = parsePluginYaml(`first: &v 1.0\nversion: ${written}\n`)
      assert.deepEqual([parsed.version, parsed.versionAsWritten], [version, versionAsWritten])
    })
  }

  it('reads aliases, keys written twice and any one-line name of a variable', () => {
    const text =
      'name: &n one\nname: two\nentry_point: *n\nenvironment: {required: ["A=B", my-key], optional: [{a: &x é}, *x]}\n'
    assert.throws(() => parsePluginYaml(text))
    const parsed = parsePluginYaml(text.replace('{a: &x é}, *x', '&x é, *x'))
    assert.deepEqual([parsed.name, parsed.entryPoint], ['two', 'one'])
    assert.deepEqual(parsed.environment, { required: ['A=B', 'my-key'], optional: ['é', 'é'] })
  })

  const refused = {
    'an empty file': '',
    'a list': '- name: x\n',
    'a plain text': 'hello',
    'broken YAML': 'name: [1\n',
    'an alias bomb': `a0: &a0 [x,x]\n${Array.from({ length: 20 }, (_, n) => `a${n + 1}: &a${n + 1} [*a${n},*a${n}]\n`).join('')}name: x\n`,
    'a list as version': 'version: [1]\n',
    'a truth value as version': 'version: true\n',
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
})
