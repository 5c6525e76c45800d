import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createLineSplitter } from '../../../scripts/terminal/line-splitter.ts'

describe('the lines of a text', () => {
  for (const [name, pieces, lines] of [
    ['in one piece', ['a\nb\n'], ['a', 'b']],
    ['cut within a line', ['a\nb', 'c\n'], ['a', 'bc']],
    ['without an end of the last line', ['a\nb'], ['a', 'b']],
    ['with empty lines', ['\n\na\n'], ['', '', 'a']],
  ] as const)
    it(`are all shown: ${name}`, () => {
      const shown: string[] = []
      const splitter = createLineSplitter(each => shown.push(...each))
      for (const piece of pieces) splitter.add(piece)
      splitter.end()
      assert.deepEqual(shown, lines)
    })
})
