import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { noSnapshot, notInstalled } from '../../src/rollback/refusals.ts'

describe('notInstalled', () => {
  const KINDS = { plugins: 'plugin', extensions: 'service' }
  const row = (shelf: keyof typeof KINDS, id: string, more: object = {}) =>
    ({ kind: KINDS[shelf], id, slug: id, directory: shelf, contract: 'marketplace', ...more }) as never
  const adviceFor = (kind: 'plugin' | 'service', id: string, installed: readonly never[]): string =>
    notInstalled({ contract: 'marketplace', kind, id }, installed).message.replace(/^.* nothing was changed\. /, '')

  it('names the part that is installed under this id or slug, and the inputs that name it', () => {
    const clock = row('extensions', 'clock')
    const renamed = row('plugins', 'hello', { slug: 'greeter' })
    const ofShop = row('plugins', 'cart', { contract: 'project', slug: 'shop' })
    const installed = [clock, renamed, ofShop]
    for (const [kind, id, advice] of [
      ['plugin', 'clock', 'The service clock is installed, as extensions/clock: set kind: service.'],
      ['plugin', 'greeter', 'The plugin greeter is installed, as plugins/hello: set id: hello.'],
      ['service', 'greeter', 'The plugin greeter is installed, as plugins/hello: set kind: plugin and id: hello.'],
      [
        'service',
        'cart',
        'plugins/cart is installed, as a part of the project shop: set project-id: shop instead of id.',
      ],
      ['plugin', 'stranger', 'Check kind, id and project-root.'],
    ] as const)
      assert.equal(adviceFor(kind, id, installed), advice)
  })
})

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
