import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseDocument } from 'yaml'
import { composeYaml, MAX_YAML_COMPLAINTS, MAX_YAML_LEVELS } from '../../../src/core/document/compose-yaml.ts'
import { PLUGIN_YAML_LIMITS } from '../../../src/core/limits.ts'
import { runToEnd } from '../../../src/core/pausing-work.ts'
import { COSTLY_SHAPES } from './costly-yaml.ts'

const compose = (text: string) => runToEnd(composeYaml(text, PLUGIN_YAML_LIMITS, {}))
const codesOf = (text: string) => compose(text).complaints.map(({ code }) => code)

describe('composeYaml', () => {
  for (const [name, text] of Object.entries({
    'a map': 'a: 1\nb: {c: [d, "e"]}\n',
    'a comment and an end': '# first\n---\na: |\n  b\n\n  c\n...\n',
    anchors: 'a: &x [1]\nb: *x\n',
    'an empty text': '',
    'Windows line endings': 'a: 1\r\nb:\r\n  - c\r\n',
  })) {
    it(`composes the same document as the library from ${name}`, () => {
      const { document, complaints } = compose(text)
      assert.deepEqual(complaints, [])
      assert.deepEqual(document?.toJS(), parseDocument(text).toJS())
      assert.deepEqual(document?.range, parseDocument(text).range)
    })
  }

  it('reports the same mistakes as the library, up to a second document', () => {
    const text = 'a: [1,, 2]\nb: "\\q"\n? - \n---\nc'
    const expected = parseDocument(text, { prettyErrors: false }).errors.map(({ code, pos }) => [code, pos[0]])
    assert.deepEqual(
      compose(text).complaints.map(({ code, offset }) => [code, offset]),
      expected,
    )
    assert.equal(expected.at(-1)?.[0], 'MULTIPLE_DOCS')
  })

  it('stops at mistake 101', () => {
    const codes = codesOf(`[${','.repeat(1000)}]`)
    assert.equal(codes.length, MAX_YAML_COMPLAINTS + 1)
    assert.equal(codes.at(-1), 'RESOURCE_EXHAUSTION')
  })

  it('stops at mistake 101 of the parser, which the composer does not see', () => {
    assert.equal(codesOf(']'.repeat(1000)).length, MAX_YAML_COMPLAINTS + 1)
    assert.equal(codesOf('...\n'.repeat(1000)).length, 1)
  })

  it('stops at the first level beyond the limit, in lists, maps, keys and lines', () => {
    const levels = MAX_YAML_LEVELS + 1
    for (const text of ['['.repeat(levels), '{a: '.repeat(levels), '- '.repeat(levels), '? '.repeat(levels)])
      assert.deepEqual(codesOf(text), ['RESOURCE_EXHAUSTION'])
    const indented = Array.from({ length: levels }, (_, level) => `${' '.repeat(level)}a:\n`).join('')
    assert.deepEqual(codesOf(`${indented}${' '.repeat(levels)}b`), ['RESOURCE_EXHAUSTION'])
  })

  it('stops after as many words and signs as a text may have', () => {
    const { complaints, document } = compose('- 1\n'.repeat(PLUGIN_YAML_LIMITS.bytes / 4))
    assert.equal(document, undefined)
    assert.match(complaints[0]?.message ?? '', new RegExp(`more than ${PLUGIN_YAML_LIMITS.lexemes}`))
  })

  for (const [name, shape] of Object.entries(COSTLY_SHAPES)) {
    it(`limits the number of complaints about ${name}`, () => {
      const { complaints } = compose(shape(PLUGIN_YAML_LIMITS.bytes))
      assert.ok(complaints.length <= MAX_YAML_COMPLAINTS + 1)
    })
  }
})
