import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { viewLog } from '../../../scripts/terminal/log-view.ts'

const LOG = `::add-mask::s3cret%25
::debug::hidden
before s3cret%
::group::fetching
  ::set-output name=a::b
inside
::warning::inside, too
::endgroup::
::save-state name=a::b
::error title=Bad (really),file=a.yaml,line=1::one%0Atwo: s3cret%25
Done.
`

describe('the view of a log', () => {
  it('shows what the page of a runner shows before and after a click on a group', () => {
    const folded = ['before ***', 'fetching', '  Warning: inside, too', 'Error (Bad (really)): one two: ***', 'Done.']
    assert.deepEqual(viewLog(LOG, { isOpen: false }), folded)
    assert.deepEqual(viewLog(LOG, { isOpen: true }), folded.toSpliced(2, 0, '  inside'))
  })
})
