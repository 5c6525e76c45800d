import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parseDocument } from 'yaml'
import {
  BUNDLED_PLAN_LIMITS,
  OPERATOR_YAML_LIMITS,
  PLUGIN_YAML_LIMITS,
  type YamlLimits,
} from '../../../src/core/identifiers.ts'
import { runToEnd } from '../../../src/core/log.ts'
import { composeYaml, MAX_YAML_COMPLAINTS, MAX_YAML_LEVELS, parseYamlSource } from '../../../src/core/yaml/source.ts'
import { whyLeftToCi } from '../../extent.ts'
import { COSTLY_SHAPES } from './costly-yaml.ts'

const refused: { name: string; text: string; at: [number, number] }[] = [
  { name: 'an alias without an anchor', text: 'a: 1\nb: *x', at: [2, 4] },
  { name: 'an alias before its anchor', text: 'b: *x\na: &x 1', at: [1, 4] },
  { name: 'an alias in its own anchor', text: 'a: &x [[*x]]', at: [1, 9] },
  { name: 'an alias as a key', text: 'a: &x b\n*x : 1', at: [2, 1] },
  { name: '101 aliases', text: `a: &x 1\nb: [${'*x, '.repeat(101)}]`, at: [2, 405] },
  { name: 'a tag of another language', text: 'a: !!js/function "x"', at: [1, 4] },
  { name: 'a local tag', text: 'a: 1\nb: !run x', at: [2, 4] },
  { name: 'a tag of the library outside the core schema', text: 'a: !!binary aGk=', at: [1, 4] },
  { name: 'a repeated key', text: 'a: 1\nb: 2\na: 3', at: [3, 1] },
  { name: 'a repeated key in another style', text: '{a: 1, "a": 2}', at: [1, 8] },
  { name: 'the key __proto__', text: 'a: {__proto__: {b: 1}}', at: [1, 5] },
  { name: 'a key that is a list', text: '? [a]\n: 1', at: [1, 3] },
  { name: 'a tab as indentation', text: 'a:\n\tb: 1', at: [2, 1] },
  { name: 'a second document', text: 'a: 1\n---\nb: 2', at: [2, 1] },
  { name: 'a version directive', text: '%YAML 1.1\n---\na: yes', at: [1, 1] },
  { name: 'an unknown directive', text: '%RUN x\n---\na: 1', at: [1, 1] },
  { name: 'an open list', text: 'a: [1', at: [1, 6] },
]

/** Mistakes in indentation. The YAML library complains about each of them up to a dozen times. */
const MISPLACED: { name: string; lines: string[]; at: [number, number] }[] = [
  { name: 'a line that is indented too far', lines: ['- id: a', '  x: b', '    y: c', '  z: d'], at: [3, 5] },
  { name: 'a key that is indented too far', lines: ['a: 1', '', '  b: 2', 'c: 3'], at: [3, 3] },
  { name: 'a line that is not indented enough', lines: ['s:', '  - id: a', '   x: b', '    y: c'], at: [3, 1] },
  { name: 'an item that is indented too far', lines: ['s:', '  - id: a', '    x: b', '     - id: c'], at: [4, 6] },
  { name: 'an item that is not indented enough', lines: ['s:', '  - id: a', '    x: b', ' - id: c'], at: [4, 1] },
  { name: 'a first line that is indented', lines: [' a: 1', 'b: 2', 'c: &x 3'], at: [2, 1] },
  { name: 'a tab', lines: ['s:', '  - id: a', '\tx: b', '    y: c'], at: [3, 1] },
]

const parse = (text: string, file: string, limits?: YamlLimits) => runToEnd(parseYamlSource(text, file, limits))

describe('parseYamlSource', () => {
  for (const { name, text, at } of refused) {
    it(`refuses ${name} at its position`, () => {
      const [problem] = parse(text, 'f.yaml').problems
      assert.deepEqual([problem?.file, problem?.line, problem?.column], ['f.yaml', ...at])
    })
  }

  it('reports all problems at once', () => {
    const { problems } = parse('a: *x\nb: !t 2\nb: 3\nc: *x', 'f.yaml')
    assert.deepEqual(
      problems.map(problem => problem.line),
      [1, 2, 3, 4],
    )
  })

  const keys = Array.from({ length: 150 }, (_, index) => `k${index}`)
  const CROWDED: { name: string; lines: string[]; first: number }[] = [
    { name: 'aliases', lines: ['s:', ...keys.map(key => `  ${key}: *x`)], first: 2 },
    { name: 'aliases in lists', lines: ['s:', ...keys.map(() => '  - [*x]')], first: 2 },
    { name: 'repeated keys', lines: keys.map(() => 'a: 1'), first: 2 },
    { name: 'repeated keys after an alias', lines: ['a: {b: *x}', ...keys.map(() => 'a: 1')], first: 1 },
  ]
  for (const { name, lines, first } of CROWDED) {
    it(`reports only the first 100 ${name}, in the order of the text`, () => {
      const { problems } = parse(lines.join('\n'), 'f.yaml')
      assert.deepEqual(
        problems.map(({ line }) => line),
        Array.from({ length: 100 }, (_, index) => first + index),
      )
    })
  }

  for (const { name, lines, at } of MISPLACED) {
    it(`reports only ${name}, at its line`, () => {
      const { problems, value } = parse(lines.join('\n'), 'f.yaml')
      assert.deepEqual(
        problems.map(({ line, column }) => [line, column]),
        [at],
        JSON.stringify(problems),
      )
      assert.match(problems[0]?.message ?? '', /^not valid YAML: |^tabs /)
      assert.equal(value, undefined)
    })
  }

  it('writes aliases out, up to 100 and within the limits', () => {
    assert.deepEqual(parse('a: &x [1, {b: 2}]\nc: *x', 'f.yaml').value, { a: [1, { b: 2 }], c: [1, { b: 2 }] })
    assert.equal(parse(`a: &x 1\nb: [${'*x, '.repeat(100)}]`, 'f.yaml').problems.length, 0)
    const long = `a: &x [${'1,'.repeat(2000)}]\nb: [${'*x,'.repeat(99)}]`
    assert.equal(parse(long, 'f.yaml', OPERATOR_YAML_LIMITS).value, undefined)
  })

  it('returns no value for an alias bomb, and expands nothing', () => {
    const levels = Array.from({ length: 9 }, (_, i) => `l${i + 1}: &l${i + 1} [${`*l${i}, `.repeat(9)}]`)
    const source = parse(['l0: &l0 [x]', ...levels].join('\n'), 'f.yaml')
    assert.equal(source.value, undefined)
    assert.ok(source.problems.length > 0)
  })

  it('refuses more bytes than a plan may have, before it parses them', () => {
    for (const text of ['x'.repeat(10 * 1024 * 1024), 'é'.repeat(OPERATOR_YAML_LIMITS.bytes / 2 + 1)]) {
      const source = parse(text, 'f.yaml')
      assert.equal(source.problems.length, 1)
      assert.equal(source.value, undefined)
      assert.deepEqual(source.positionOf(['a']), { file: 'f.yaml', line: 1, column: 1 })
    }
    assert.deepEqual(parse('x'.repeat(OPERATOR_YAML_LIMITS.bytes), 'f.yaml').problems, [])
  })

  it('refuses more bytes than the plan of a project may have', () => {
    const text = 'x'.repeat(BUNDLED_PLAN_LIMITS.bytes + 1)
    assert.equal(parse(text, 'f.yaml', BUNDLED_PLAN_LIMITS).problems.length, 1)
  })

  for (const [name, text, line] of [
    ['NUL characters at the end', `a: 1\nb: 2\n${'\0'.repeat(100)}`, 3],
    ['NUL after a comment, which hides the rest', 'a: 1 # \0\nb: 2', 1],
    ['NUL in quotes', 'a: "\0"', 1],
    ['a carriage return in a comment, which hides what follows', '# first\n# x\rb: 2\n', 2],
    ['a control character', 'a: \u001b[2J', 1],
    ['half a surrogate pair', 'a: \ud800', 1],
    ['bytes that were not UTF-8', 'a: 1\nb: \ufffd', 2],
  ] as const) {
    it(`refuses ${name}`, () => {
      const { problems, value } = parse(text, 'f.yaml')
      assert.equal(value, undefined)
      assert.equal(problems.length, 1)
      assert.match(problems[0]?.message ?? '', new RegExp(`in line ${line}$`))
    })
  }

  it('accepts an escaped NUL, which the schema of each key judges', () => {
    assert.deepEqual(parse('a: "\\0"', 'f.yaml').value, { a: '\0' })
  })

  const deep = {
    'flow lists': '['.repeat(100_000),
    'closed flow lists': '['.repeat(100_000) + ']'.repeat(100_000),
    'flow maps': '{a: '.repeat(60_000),
    'block lists': `${'- '.repeat(100_000)}a`,
    'one level too many': '['.repeat(MAX_YAML_LEVELS + 1) + ']'.repeat(MAX_YAML_LEVELS + 1),
  }
  for (const [name, text] of Object.entries(deep)) {
    it(`refuses deep nesting: ${name}`, () => {
      const source = parse(text, 'f.yaml')
      assert.ok(source.problems.length > 0)
      assert.equal(source.value, undefined)
    })
  }

  it('accepts nesting to the last level', () => {
    assert.deepEqual(parse('['.repeat(MAX_YAML_LEVELS) + ']'.repeat(MAX_YAML_LEVELS), 'f.yaml').problems, [])
  })

  it('treats merge keys as ordinary keys', () => {
    assert.deepEqual(parse('a: {<<: {b: 1}}', 'f.yaml').value, { a: { '<<': { b: 1 } } })
  })

  it('reads scalars by the YAML 1.2 core schema', () => {
    assert.deepEqual(parse('[yes, 010, 0o10, 1.10, ~, !!str 1.10]', 'f.yaml').value, ['yes', 10, 8, 1.1, null, '1.10'])
  })

  for (const [name, start, end] of [
    ['LF', '', '\n'],
    ['CRLF', '', '\r\n'],
    ['a byte order mark', '\uFEFF', '\n'],
  ] as const) {
    it(`finds positions in a text with ${name}`, () => {
      const source = parse(`${start}a: 1${end}steps:${end}  - {id: x, deps: [y, z]}${end}`, 'f.yaml')
      assert.deepEqual(source.problems, [])
      assert.deepEqual(source.positionOf(['a']), { file: 'f.yaml', line: 1, column: 4 })
      assert.deepEqual(source.positionOfKey(['a']), { file: 'f.yaml', line: 1, column: 1 })
      assert.deepEqual(source.positionOf(['steps', 0]), { file: 'f.yaml', line: 3, column: 5 })
      assert.deepEqual(source.positionOf(['steps', 0, 'deps', 1]), { file: 'f.yaml', line: 3, column: 23 })
      assert.deepEqual(source.positionOfKey(['steps', 0, 'deps']), { file: 'f.yaml', line: 3, column: 13 })
    })
  }

  it('gives the position of the closest ancestor for a missing value', () => {
    const source = parse('a:\n  - b: 1', 'f.yaml')
    assert.deepEqual(source.positionOf(['a', 0, 'c', 'd']), { file: 'f.yaml', line: 2, column: 5 })
    assert.deepEqual(source.positionOfKey(['a', 0, 'c']), { file: 'f.yaml', line: 2, column: 5 })
    assert.deepEqual(parse('', 'f.yaml').positionOf(['a']), { file: 'f.yaml', line: 1, column: 1 })
  })

  it('does not quote the text', () => {
    const [problem] = parse('"a\\n::error::x": 1\n"a\\n::error::x": 2', 'f.yaml').problems
    assert.doesNotMatch(problem?.message ?? 'error', /error/)
  })
})

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

/** Seconds of processor time, which a busy machine does not lengthen. The 200 or so texts take about 10 s. */
const MAX_CPU_SECONDS = 120
const MAX_MEGABYTES = 100

describe('the cost of YAML that someone else wrote', { skip: process.platform === 'win32' }, () => {
  for (const reader of ['plugin.yaml', 'a bundled plan', 'a plan']) {
    it(`is bounded for ${reader}, whatever it contains`, { skip: whyLeftToCi() }, () => {
      const program = join(import.meta.dirname, 'read-costly-yaml.ts')
      const script = `ulimit -t ${MAX_CPU_SECONDS} && exec "$0" --expose-gc --max-semi-space-size=1 "$1" "$2"`
      const child = spawnSync('sh', ['-c', script, process.execPath, program, reader], { encoding: 'utf8' })
      assert.equal(child.status, 0, `${child.signal} ${child.stderr}`)
      const { megabytes, longestMessage } = JSON.parse(child.stdout)
      if (reader === 'plugin.yaml' || reader === 'a bundled plan')
        assert.ok(megabytes <= MAX_MEGABYTES, `${megabytes} MB`)
      assert.ok(longestMessage < 2000, `a message of ${longestMessage} characters`)
    })
  }
})
