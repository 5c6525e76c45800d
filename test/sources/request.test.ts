import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeployError } from '../../src/core/errors.ts'
import type { SourcedVersion, SourcePast } from '../../src/install/host/rows.ts'
import { refuseOlder, refuseReused, SourceBudget } from '../../src/sources/request.ts'

it('lets the sources of a run share the limits of time, bytes and entries', () => {
  let now = 1000
  const extraction = { maxExtractedBytes: 100, maxEntries: 10 }
  const budget = new SourceBudget({ downloadTimeoutMs: 500, maxArtifactBytes: 50, extraction }, () => now)
  assert.deepEqual(budget.left, { downloadTimeoutMs: 500, maxArtifactBytes: 50, extraction })
  now += 200
  budget.spend({ received: 20, tree: { bytes: 60, files: [1, 2], symlinks: [3], directories: [4] } })
  const left = { maxExtractedBytes: 40, maxEntries: 6 }
  assert.deepEqual(budget.left, { downloadTimeoutMs: 300, maxArtifactBytes: 30, extraction: left })
  now += 400
  budget.spend({ received: 60, tree: { bytes: 60, files: Array(7).fill(0), symlinks: [], directories: [] } })
  const nothing = { maxExtractedBytes: 0, maxEntries: 0 }
  assert.deepEqual(budget.left, { downloadTimeoutMs: 1, maxArtifactBytes: 0, extraction: nothing })
})

const FROM = 'https://hub.example.org plugin pay'

function had(version: string, id: string, more: Partial<SourcedVersion> = {}): SourcedVersion {
  return { version, source: { from: FROM, id }, ...more }
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

describe('the version that a marketplace serves for a part', () => {
  const reused: [what: string, history: SourcedVersion[], code: string | undefined][] = [
    ['no version', [], undefined],
    ['the same bytes', [had('2.0.0', 'b')], undefined],
    ['another version', [had('1.0.0', 'a')], undefined],
    ['the same version with different bytes', [had('2.0.0', 'a')], 'version_reused'],
    ['the same version with a leading v', [had('v2.0.0', 'a')], 'version_reused'],
    [
      'the same version from another source',
      [had('2.0.0', 'a', { source: { from: 'https://other', id: 'a' } })],
      undefined,
    ],
  ]
  for (const [what, history, code] of reused)
    it(`is ${code ?? 'accepted'} when the host had ${what}`, () =>
      assert.equal(
        codeOf(() => refuseReused(offered, history)),
        code,
      ))

  const other = { source: { from: `${FROM}-lite`, id: 'a' } }
  const older: [what: string, past: Partial<SourcePast>, code: string | undefined][] = [
    ['no version', {}, undefined],
    ['the same version', { installed: had('2.0.0', 'b') }, undefined],
    ['an older version', { installed: had('1.0.0', 'a') }, undefined],
    ['a newer version', { installed: had('3.0.0', 'a') }, 'downgrade_refused'],
    ['a newer version of another plugin', { installed: had('3.0.0', 'a', other) }, undefined],
    [
      'an older version that replaced these bytes',
      { installed: had('1.0.0', 'a'), wasReplaced: () => true },
      'downgrade_refused',
    ],
  ]
  for (const [what, past, code] of older)
    it(`as latest is ${code ?? 'accepted'} when the host has ${what}`, () =>
      assert.equal(
        codeOf(() => refuseOlder(offered, { installed: undefined, history: [], wasReplaced: () => false, ...past })),
        code,
      ))
})
