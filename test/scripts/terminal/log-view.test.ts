import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createLineSplitter, viewLog } from '../../../scripts/terminal/log-view.ts'

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

const LOG = `::add-mask::s3cret%25
::debug::hidden
before s3cret%
::group::fetching
  ::set-output name=a::b
inside
fetching: still running after 10 s
::warning::inside, too
::endgroup::
::save-state name=a::b
::error title=Bad (really),file=a.yaml,line=1::one%0Atwo: s3cret%25
Done.
`

describe('the view of a log', () => {
  it('shows what the page of a runner shows before and after a click on a group', () => {
    const group = ['fetching', '  fetching: still running after 10 s', '  Warning: inside, too']
    const folded = ['before ***', ...group, 'Error (Bad (really)): one two: ***', 'Done.']
    assert.deepEqual(viewLog(LOG, { isOpen: false }), folded)
    assert.deepEqual(viewLog(LOG, { isOpen: true }), folded.toSpliced(2, 0, '  inside'))
  })
})
