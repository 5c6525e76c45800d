import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { asSentence } from '../../src/core/sentence.ts'

describe('asSentence', () => {
  const cases: Record<string, string> = {
    'names no file': 'names no file.',
    'the hub answered 403 (no)': 'the hub answered 403 (no).',
    'It is done.': 'It is done.',
    'Is it done?': 'Is it done?',
    'It says "done."': 'It says "done."',
    '': '.',
  }
  for (const [text, sentence] of Object.entries(cases))
    it(`returns "${sentence}" for "${text}"`, () => assert.equal(asSentence(text), sentence))
})
