import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseSettings } from '../../../src/core/plan/settings.ts'

describe('parseSettings', () => {
  it('takes each value to the end of its line, and skips comments and empty lines', () => {
    const text = '# comment\n\nA=1\n  # indented\nB= two = 2 \r\nC=\n\t\nD=#x'
    const { settings, problems } = parseSettings(text)
    assert.deepEqual(problems, [])
    assert.deepEqual(Object.fromEntries(settings), { A: '1', B: ' two = 2 ', C: '', D: '#x' })
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
