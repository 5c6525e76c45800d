import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parseEnv } from 'node:util'
import { DeploymentError } from '../../../src/core/errors.ts'
import { parseSettings, quoteSetting, seedSettings, verifySettings } from '../../../src/core/plan/settings.ts'
import { temporaryDirectory } from '../../folders.ts'

describe('parseSettings', () => {
  it('takes each value to the end of its line, and skips comments and empty lines', () => {
    const text = '# comment\n\nA=1\n  # indented\nB= two = 2 \r\nC=\n\t\nD=#x'
    const { settings, problems } = parseSettings(text)
    assert.deepEqual(problems, [])
    assert.deepEqual(Object.fromEntries(settings), { A: '1', B: 'two = 2 ', C: '', D: '#x' })
  })

  it('distinguishes settings from built-in properties of every object', () => {
    assert.deepEqual(
      [...parseSettings('constructor=1\n__proto__=2').settings],
      [
        ['constructor', '1'],
        ['__proto__', '2'],
      ],
    )
    assert.equal(parseSettings('A=1').settings.get('constructor'), undefined)
  })

  for (const line of ['hunter22', '=hunter22', 'export A=hunter22', 'A-B=hunter22', '1A=hunter22', 'A:hunter22']) {
    it(`refuses ${JSON.stringify(line)} without quoting it`, () => {
      const { problems } = parseSettings(`OK=1\n${line}\n`)
      assert.equal(problems.length, 1)
      assert.match(problems[0] ?? '', /line 2/)
      assert.doesNotMatch(problems[0] ?? '', /hunter/)
    })
  }

  it('refuses a name that is given twice', () => {
    assert.match(parseSettings('A=1\nA=2').problems.join(), /\bA\b.*line 2/)
  })

  it('refuses a value that readers would read differently, and names only its key', () => {
    const { problems } = parseSettings(`OK=1\nDB_PASSWORD=hunter\${HOME}22`)
    assert.match(problems.join(), /DB_PASSWORD.*line 2/)
    assert.doesNotMatch(problems.join(), /hunter/)
  })
})

const READ_ALIKE = [
  '',
  'plain',
  'https://db.example:5432/app?x=1',
  'user:p%40ss@host',
  '=a==b=',
  'two words',
  ' around ',
  '\t',
  '\u00a0no-break\u00a0',
  'a;b',
  'a; rm -rf /',
  'a&b|c<d>e(f)',
  '#no comment',
  'a #comment',
  'p#ss',
  '$HOME',
  '$(id)',
  '${',
  '`id`',
  'say "hi"',
  "it's",
  "it's a; #test",
  "'",
  "''",
  '"',
  '~',
  'a:~/b',
  '~root',
  '*',
  '{a,b}',
  '!!',
  'C:\\dir\\file',
  'a\\nb',
  'a\\$b',
  '%s%n',
  'grün ā \u0081 \u2028 \u0085 😀',
  'export A=1',
  '-n',
  '\u0001\u001b[31m\u007f',
  'x'.repeat(5000),
] as const

const READ_DIFFERENTLY = [
  'two\nlines',
  'a\rb',
  'a\0b',
  'a\\\\b',
  'ends in \\',
  `\${HOME}`,
  `\${}`,
  `a\${B:-c}d`,
  `it's "quoted"`,
  "it's $HOME",
  "it's `id`",
  "it's C:\\dir",
  '\ud800',
] as const

type Reader = (path: string, text: string) => string[]

const READERS: Record<string, Reader> = {
  'a shell': path => {
    const names = READ_ALIKE.map((_, index) => `"$V${index}"`).join(' ')
    const text = execFileSync('/bin/sh', ['-c', `. "$0" && printf '%s\\0' ${names}`, path], { encoding: 'utf8' })
    return text.split('\0').slice(0, -1)
  },
  'parseEnv of Node': (_, text) => {
    const values = parseEnv(text)
    return READ_ALIKE.map((_, index) => String(values[`V${index}`]))
  },
  'python-dotenv': path => {
    const program = 'import dotenv, json, sys; print(json.dumps(dotenv.dotenv_values(sys.argv[1])))'
    const values = JSON.parse(execFileSync('python3', ['-c', program, path], { encoding: 'utf8' }))
    return READ_ALIKE.map((_, index) => values[`V${index}`])
  },
}

function writeSettings(t: TestContext): { path: string; text: string } {
  const lines = READ_ALIKE.map((value, index) => `V${index}=${quoteSetting(value)}\n`)
  const path = join(temporaryDirectory(t), 'settings.env')
  writeFileSync(path, lines.join(''))
  return { path, text: lines.join('') }
}

function whyNot(reader: string): string | false {
  const lacks = reader === 'python-dotenv' && spawnSync('python3', ['-c', 'import dotenv']).status !== 0
  return lacks && 'python3 with python-dotenv is not installed'
}

describe('quoteSetting', () => {
  for (const [name, read] of Object.entries(READERS)) {
    it(`writes values that ${name} reads back unchanged`, { skip: whyNot(name) }, t => {
      const { path, text } = writeSettings(t)
      assert.deepEqual(read(path, text), READ_ALIKE)
    })
  }

  for (const value of READ_DIFFERENTLY) {
    it(`refuses ${JSON.stringify(value)}`, () => assert.equal(quoteSetting(value), undefined))
  }
})

const CASES = {
  'a template without values': ['A=1\n# note\n\nB=2\n', {}, 'A=1\n# note\n\nB=2\n'],
  'a value of the settings': ['A=1\nB=2\n', { B: 'two' }, 'A=1\nB=two\n'],
  'an export line': ['export A=1\n', { A: 'x' }, 'export A=x\n'],
  'an empty value, which counts as not set': ['A=1\n', { A: '' }, 'A=1\n'],
  'a setting that the template does not name': ['A=1\n', { OTHER: 'x' }, 'A=1\n'],
  'a commented-out key': ['#A=1\n', { A: 'x' }, '#A=1\n'],
  'Windows line endings': ['A=1\r\nB=\r\n', { B: 'x' }, 'A=1\nB=x\n'],
  'a template without a final line break': ['A=1', {}, 'A=1\n'],
  'a value with a hash': ['A=\n', { A: 'p#ss' }, "A='p#ss'\n"],
  'a value with a dollar': ['A=\n', { A: '$HOME' }, "A='$HOME'\n"],
  'a value with an apostrophe': ['A=\n', { A: "it's" }, `A="it's"\n`],
  'a value with a semicolon or a space inside': ['A=\nB=\n', { A: 'a;b', B: 'a b' }, "A='a;b'\nB='a b'\n"],
  'a key followed by a space, which a shell would run': ['A = 1\n', { A: 'x' }, 'A=x\n'],
  'keys that are built-in properties of every object': ['constructor=1\ntoString=\n', {}, 'constructor=1\ntoString=\n'],
  'a value with spaces around it': ['A=\n', { A: ' x ' }, "A=' x '\n"],
} as const

function refused(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'step_failed'
}

const NONE = { required: [], optional: [] }

describe('seedSettings', () => {
  for (const [name, [template, given, text]] of Object.entries(CASES)) {
    it(`builds the right file: ${name}`, () =>
      assert.equal(seedSettings(template, NONE, new Map(Object.entries(given))).text, text))
  }

  it('appends the required and optional keys that are set and that the template lacks', () => {
    const seeded = seedSettings(
      'A=1\n',
      { required: ['B'], optional: ['C', 'D'] },
      new Map([
        ['B', '2'],
        ['C', '3'],
      ]),
    )
    assert.equal(seeded.text, 'A=1\nB=2\nC=3\n')
    assert.deepEqual(seeded.given, ['B', 'C'])
  })

  for (const template of ['', 'A=\n', 'A=  \n', 'A=""\n', "A=''\n", 'A= # to be set\n', '#A=1\n', 'A=1\nA=\n']) {
    it(`fails when a required key stays empty in ${JSON.stringify(template)}`, () => {
      assert.throws(() => seedSettings(template, { required: ['A'], optional: [] }, new Map()), refused)
      assert.throws(() => seedSettings(template, { required: ['A'], optional: [] }, new Map([['A', '']])), refused)
    })
  }

  it('does not name the settings input in a rollback, which has no such input', () => {
    const required = { required: ['A', 'B'], optional: [] }
    assert.throws(() => seedSettings('', required, undefined), {
      message: /requires A, B, for which the template has no value, .* settings file by hand .*, set them there/,
    })
  })

  it('names every empty required key at once', () => {
    assert.throws(() => seedSettings('', { required: ['ONE', 'TWO'], optional: [] }, new Map()), /ONE.*TWO/)
  })

  for (const value of ['a\nB=1', 'a\rb', 'a\0b', `it's "$1"`]) {
    it(`refuses the value ${JSON.stringify(value)} without quoting it`, () => {
      assert.throws(
        () => seedSettings('A=\n', NONE, new Map([['A', value]])),
        error => refused(error) && !(error as Error).message.includes(value),
      )
    })
  }
})

describe('verifySettings', () => {
  for (const text of ['A=1\n', 'export A=1', "# A\r\nA='x'\r\n", 'A=\nA=2\n']) {
    it(`accepts ${JSON.stringify(text)}`, () => verifySettings({ path: 'x.env', text }, ['A']))
  }

  for (const text of ['', 'B=1\n', 'A=\n', 'A=""\n', '#A=1\n', 'A= # later\n']) {
    it(`refuses ${JSON.stringify(text)} if A is required`, () => {
      assert.throws(() => verifySettings({ path: 'x.env', text }, ['A']), refused)
    })
  }

  it('refuses names that are not valid variable names', () => {
    assert.throws(() => seedSettings('', { required: ['api-key'], optional: [] }, new Map()), { code: 'step_failed' })
    assert.throws(() => verifySettings({ path: 'x.env', text: '' }, ['api key']), { code: 'step_failed' })
  })

  it('closes the quotes around a long name', () => {
    const required = [`${'a-'.repeat(60)}`]
    assert.throws(() => verifySettings({ path: 'x.env', text: '' }, required), {
      message: /"a-[a-]+… \(cut\)" under environment, but/,
    })
  })

  for (const [what, name] of [
    ['names that are not valid', (n: number) => `a-${n}`],
    ['names', (n: number) => `NAME_${n}`],
    ['long names', (n: number) => `${'N'.repeat(20)}_${n}`.repeat(50)],
  ] as const) {
    it(`keeps its message short when plugin.yaml requires thousands of ${what}`, () => {
      const required = Array.from({ length: 3000 }, (_, n) => name(n))
      const isShort = (error: Error) => error.message.length < 3000 && error.message.includes('2980 more')
      assert.throws(() => seedSettings('', { required, optional: [] }, new Map()), isShort)
      assert.throws(() => verifySettings({ path: 'x.env', text: '' }, required), isShort)
    })
  }
})
