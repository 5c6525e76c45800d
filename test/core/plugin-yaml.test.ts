import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ArtifactError } from '../../src/core/errors.ts'
import { parsePluginYaml } from '../../src/core/plugin-yaml.ts'

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
  ] as const
  for (const [written, version, versionAsWritten] of versions) {
    it(`reads version: ${written} as ${version}`, () => {
      const parsed = parsePluginYaml(`version: ${written}\n`)
      assert.deepEqual([parsed.version, parsed.versionAsWritten], [version, versionAsWritten])
    })
  }

  const refused = {
    'an empty file': '',
    'a list': '- name: x\n',
    'a plain text': 'hello',
    'broken YAML': 'name: [1\n',
    'a key twice': 'version: 1\nversion: 2\n',
    'an alias': 'name: &a x\nentry_point: *a\n',
    'an alias bomb': `a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\nname: x\n`,
    'a list as version': 'version: [1]\n',
    'a truth value as version': 'version: true\n',
    'a number as execution_mode': 'execution_mode: 1\n',
    'an empty entry_point': 'entry_point: ""\n',
    'a list as environment': 'environment: [A]\n',
    'a name of a variable that is none': 'environment: {required: ["A=B"]}\n',
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
