import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeployError } from '../../src/core/errors.ts'
import { refuseReplaced, refuseReused, type SuppliedVersion } from '../../src/sources/source-history.ts'

const FROM = 'https://hub.example.org plugin pay'

function had(version: string, id: string, more: Partial<SuppliedVersion> = {}): SuppliedVersion {
  return { version, source: { from: FROM, id }, isInstalled: false, ...more }
}

function codeOf(act: () => void): string | undefined {
  try {
    act()
    return undefined
  } catch (error) {
    assert.ok(error instanceof DeployError)
    return error.code
  }
}

const offered = { version: '2.0.0', source: { from: FROM, id: 'b' } }

describe('what a marketplace serves for a part', () => {
  const reused: [what: string, history: SuppliedVersion[], code: string | undefined][] = [
    ['nothing known', [], undefined],
    ['the same bytes', [had('2.0.0', 'b')], undefined],
    ['another version', [had('1.0.0', 'a')], undefined],
    ['the same version with other bytes', [had('2.0.0', 'a')], 'version_reused'],
    ['the same version with a leading v', [had('v2.0.0', 'a')], 'version_reused'],
    [
      'the same version from another source',
      [had('2.0.0', 'a', { source: { from: 'https://other', id: 'a' } })],
      undefined,
    ],
  ]
  for (const [what, history, code] of reused)
    it(`is ${code ?? 'accepted'} next to ${what}`, () =>
      assert.equal(
        codeOf(() => refuseReused(offered, history)),
        code,
      ))

  const replaced: [what: string, history: SuppliedVersion[], code: string | undefined][] = [
    ['nothing known', [], undefined],
    ['these bytes, installed', [had('2.0.0', 'b', { isInstalled: true })], undefined],
    [
      'these bytes, installed and once replaced',
      [had('2.0.0', 'b'), had('2.0.0', 'b', { isInstalled: true })],
      undefined,
    ],
    ['these bytes, replaced', [had('2.0.0', 'b'), had('3.0.0', 'c', { isInstalled: true })], 'downgrade_refused'],
    ['these bytes, replaced under another version', [had('1.0.0', 'b')], 'downgrade_refused'],
  ]
  for (const [what, history, code] of replaced)
    it(`as latest is ${code ?? 'accepted'} next to ${what}`, () =>
      assert.equal(
        codeOf(() => refuseReplaced(offered, history)),
        code,
      ))
})
