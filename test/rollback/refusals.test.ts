import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { noSnapshot } from '../../src/rollback/refusals.ts'

describe('noSnapshot', () => {
  const row = { shelf: 'plugins', id: 'greeter', version: '2.0.0' }
  const messageFor = (versions: string[]): string => {
    const known = versions.map(version => ({ version, modified: false, tree_digest: 'ab' }))
    return noSnapshot(row as never, { toVersion: '9', known: known as never }).message
  }

  it('names no version that a rollback would refuse for want of a record', () => {
    const taken = { name: '1-0.9.0', version: '0.9.0', tree_digest: null }
    const message = (known: unknown) =>
      noSnapshot(row as never, { toVersion: undefined, known: known as never }).message
    assert.match(
      message([taken]),
      /Snapshot 1-0\.9\.0 has no record of its files.* deploy a version from the hub, or move /,
    )
    assert.doesNotMatch(message([taken]), /to-version/)
    const known = { name: '2-1.0.0', version: '1.0.0', tree_digest: 'ab' }
    assert.match(message([taken, known]), /The host has 1\.0\.0\. To restore this version/)
  })

  it('gives advice that fits no version, one version and several versions', () => {
    assert.match(messageFor([]), /nothing was changed\. Deploy a version from the hub\.$/)
    assert.match(
      messageFor(['1.0.0']),
      /The host has 1\.0\.0\. To restore this version, even if it is later than the installed one, name /,
    )
    assert.match(messageFor(['1.0.0', '1.1.0']), /The host has 1\.0\.0, 1\.1\.0\. To restore one of these, even a /)
  })
})
