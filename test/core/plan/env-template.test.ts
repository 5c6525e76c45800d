import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { seedSettings, verifySettings } from '../../../src/core/plan/env-template.ts'

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
