import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parsePlainYaml, parseYamlDocument } from '../../hub/yaml.ts'

describe('reading YAML', () => {
  it('returns the value', () => assert.deepEqual(parsePlainYaml('a: [1.10, x]\n', 'f.yaml').value, { a: [1.1, 'x'] }))

  it('keeps scalars as text on request', () => {
    assert.deepEqual(parseYamlDocument('a: 1.10\n', 'f.yaml').toJS(), { a: '1.10' })
  })

  for (const [name, text, place] of [
    ['an open bracket', 'a: 1\nb: [x\n', 'line 3, column 1'],
    ['an open quote', 'a: "x\n', 'line 2, column 1'],
    ['a tab', 'a: 1\n\tb: x\n', 'line 2, column 1'],
    ['a repeated key', 'a: 1\na: 2\n', 'line 2, column 1'],
    ['an alias', 'a: &x 1\nb: *x\n', 'line 2, column 4'],
    ['an alias without an anchor', 'b: *x\n', 'line 1, column 4'],
    ['a second document', 'a: 1\n---\nb: 2\n', 'line 2, column 1'],
  ] as const) {
    it(`refuses ${name} in one sentence, with its place`, () => {
      assert.throws(
        () => parseYamlDocument(text, 'f.yaml'),
        ({ name: type, status, message }) => {
          assert.deepEqual([type, status], ['HubError', 400])
          assert.ok(message.startsWith(`f.yaml, ${place}: `), message)
          assert.match(message, /^[^\n]*[^\s:]\.$/)
          assert.doesNotMatch(message, /parseAllDocuments|at line/)
          return true
        },
      )
    })
  }
})
