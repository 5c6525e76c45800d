import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeployError } from '../../../src/core/errors.ts'
import {
  isOlderVersion,
  isSameVersion,
  meetsCondition,
  refuseDowngrade,
  refuseReusedVersion,
  replacedBytes,
} from '../../../src/core/trust/versions.ts'

describe('isSameVersion', () => {
  const cases = [
    ['1.4.0', '1.4.0', true],
    ['v1.4.0', '1.4.0', true],
    ['1.4.0', 'v1.4.0', true],
    ['vv1.4.0', 'v1.4.0', false],
    ['1.4', '1.4.0', false],
    ['version', 'ersion', false],
  ] as const
  for (const [a, b, same] of cases) it(`${a} and ${b}: ${same}`, () => assert.equal(isSameVersion(a, b), same))
})

describe('isOlderVersion', () => {
  const cases = [
    ['1.3.9', '1.4.0', true],
    ['1.4.0', '1.4.0', false],
    ['1.10.0', '1.9.0', false],
    ['1.9.0', '1.10.0', true],
    ['v1.3.0', '1.4.0', true],
    ['1.4', '1.4.1', true],
    ['1', '1.0.1', true],
    ['1.4.0-rc.1', '1.4.0', true],
    ['1.4.0+build.1', '1.4.0+build.2', false],
    ['nightly', '1.4.0', undefined],
    ['1.4.0', 'nightly', undefined],
    ['2024.01.02', '2024.1.1', false],
    ['2023.01.02', '2024.05.01', true],
    ['2024.05.01', '2024.5.1', false],
    ['2024.9.30', '2024.10.01', true],
    ['1.2.3.4', '1.2.3.10', true],
    ['1.2.3', '1.2.3.0', false],
    ['20240501', '20240430', false],
    ['99999999999999999999998', '99999999999999999999999', true],
    ['1.0rc1', '1.0', true],
    ['1.0', '1.0rc1', false],
    ['1.0a2', '1.0b1', true],
    ['1.0b2', '1.0rc1', true],
    ['1.0rc2', '1.0rc10', true],
    ['1.0.dev3', '1.0a1', true],
    ['1.0a1.dev1', '1.0a1', true],
    ['1.0a1', '1.0a1.post1', true],
    ['1.0', '1.0.post1', true],
    ['1.0.post2', '1.0.post1', false],
    ['1.0.post1.dev1', '1.0.post1', true],
    ['1.0.post1', '1.1.dev1', true],
    ['1.0.0-rc.1', '1.0rc2', true],
    ['2024.05.01-2', '2024.05.01-1', false],
    ['1.0-1', '1.0', false],
    ['1.0-1', '1.0-2', true],
    ['1.0-2', '1.0.post1', false],
    ['1.0-1', '1.0.1', true],
    ['1.0.0-1', '1.0.0', true],
    ['1.0.0-1', '1.0-1', undefined],
    ['1.0', '1.0+local.1', true],
    ['1.0+local.1', '1.0+local.2', true],
    ['1.0+local.10', '1.0+local.9', false],
    ['1.0+abc', '1.0+5', true],
    ['1.0+abc', '1.0+ABD', true],
    ['1.0+abc', '1.0+abc.1', true],
    ['1.0+local.1', '1.0.post1', true],
    ['2024.05.01', '2024-05-02', true],
    ['2024-05-01', '2024-04-30', false],
    ['2024-05-01', '2024-05-01', false],
    ['2024-05-01', '2024-5', undefined],
    ['1.0.0', '1.0.0-x.y.0.1+z', false],
    ['a1b2c3d', 'd3c2b1a', undefined],
    ['nightly', 'nightly', false],
  ] as const
  for (const [candidate, installed, older] of cases) {
    it(`${candidate} against ${installed}: ${older}`, () => assert.equal(isOlderVersion(candidate, installed), older))
  }
})

const [THESE, OTHER] = ['aa'.repeat(32), 'bb'.repeat(32)]

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeployError && error.code === code
}

describe('meetsCondition', () => {
  const cases: [version: string, condition: string, expected: boolean | undefined][] = [
    ['2.1.3', '2.1.3', true],
    ['2.1.0', '==2.1', true],
    ['v2.1', '== 2.1.0', true],
    ['2.1.3', '2.1', false],
    ['2.10', '>=2.9', true],
    ['2.9', '>=2.10', false],
    ['3.0', '<=3', true],
    ['3.0.1', '<=3', false],
    ['3', '>3.0', false],
    ['3.0.0.1', '>3.0', true],
    ['2.9', '<3.0', true],
    ['3.0', '<3.0', false],
    ['2.5', '>=2.0, <3.0', true],
    ['3.0', '>=2.0,<3.0', false],
    ['beta', '*', true],
    ['2.0', '', undefined],
    ['2.0', '^2.0', undefined],
    ['2.0', '>=2.0,!=2.1', undefined],
    ['1.0', '>=2.0,!=2.1', false],
    ['2.0-rc.1', '>=2.0', undefined],
  ]
  for (const [version, condition, expected] of cases)
    it(`${version} and "${condition}": ${expected}`, () => assert.equal(meetsCondition(version, condition), expected))
})

describe('refuseDowngrade', () => {
  const cases: [string, string | null, boolean][] = [
    ['1.0.0', '1.0.1', true],
    ['1.0.0-rc.1', '1.0.0', true],
    ['1.0.0', '1.0.0', false],
    ['2.0.0', '1.0.0', false],
    ['1.0.0', null, false],
    ['nightly', '1.0.0', true],
    ['nightly', 'nightly', false],
    ['2023.01.02', '2024.05.01', true],
    ['2024.05.02', '2024.05.01', false],
  ]
  for (const [latest, installed, isRefused] of cases) {
    it(`${latest} over ${installed}: ${isRefused ? 'refused' : 'accepted'}`, () => {
      if (isRefused)
        assert.throws(
          () => refuseDowngrade(latest, { version: installed, isOurs: true }),
          refusedWith('downgrade_refused'),
        )
      else refuseDowngrade(latest, { version: installed, isOurs: true })
    })
  }
})

describe('refuseDowngrade over a version that this action did not install', () => {
  it('refuses only a version that is certainly older', () => {
    refuseDowngrade('1.0.0', { version: 'development', isOurs: false })
    const newer = { version: '1.0.1', isOurs: false }
    assert.throws(() => refuseDowngrade('1.0.0', newer), refusedWith('downgrade_refused'))
  })
})

describe('replacedBytes', () => {
  it('does not call an upgrade a downgrade, and names the installed version and its date', () => {
    const served = { version: '1.4.0', sha256: THESE }
    const { code, message } = replacedBytes(served, { version: '1.3.0', installed_at: '2026-11-20T10:00:00.000Z' })
    assert.equal(code, 'downgrade_refused')
    assert.equal(
      message,
      `This host has already replaced the hub's latest version, 1.4.0 (sha256 ${THESE}), and now runs 1.3.0 (installed on 2026-11-20). A run with version: latest does not restore a replaced version: nothing was installed. To install the hub's version anyway, name that version or set allow-downgrade: true.`,
    )
  })

  it('gives other advice for a source in a manifest, whose version only the publisher can name', () => {
    const { message } = replacedBytes({ version: '1.4.0', sha256: THESE }, undefined, 'manifest')
    assert.match(message, /A source with the version latest does not .*have the publisher name that version/)
    assert.doesNotMatch(message, /A run with/)
  })

  it('leaves out a version or a date that is unknown', () => {
    const { message } = replacedBytes({ version: null, sha256: THESE }, { version: null })
    assert.match(
      message,
      /replaced the hub's latest version \(sha256 a+\)\. A run with version: latest does not restore a replaced version/,
    )
  })
})

const UNPINNED = { artifactSha256: undefined, redeploy: false }

describe('refuseReusedVersion', () => {
  const known = [
    { version: '2.0.0', artifact_sha256: THESE },
    { version: '1.0.0', artifact_sha256: OTHER },
    { version: '0.9', artifact_sha256: null },
  ]
  it('refuses an installed or retained version with different bytes', () => {
    assert.throws(
      () => refuseReusedVersion({ version: '2.0.0', sha256: OTHER }, known, UNPINNED),
      refusedWith('version_reused'),
    )
    assert.throws(
      () => refuseReusedVersion({ version: 'v2.0.0', sha256: OTHER }, known, UNPINNED),
      refusedWith('version_reused'),
    )
    assert.throws(
      () => refuseReusedVersion({ version: '1.0.0', sha256: THESE }, known, UNPINNED),
      refusedWith('version_reused'),
    )
    assert.throws(
      () => refuseReusedVersion({ version: '2.0.0', sha256: OTHER }, known, { artifactSha256: THESE, redeploy: true }),
      refusedWith('version_reused'),
    )
  })

  it('refuses pinned bytes without redeploy, and redeploy without pinned bytes', () => {
    for (const accepted of [
      { artifactSha256: OTHER, redeploy: false },
      { artifactSha256: undefined, redeploy: true },
    ]) {
      assert.throws(
        () => refuseReusedVersion({ version: '2.0.0', sha256: OTHER }, known, accepted),
        refusedWith('version_reused'),
      )
    }
  })

  it('accepts the same bytes, a new version, pinned bytes with redeploy, and a version that this action did not install', () => {
    refuseReusedVersion({ version: '2.0.0', sha256: THESE }, known, UNPINNED)
    refuseReusedVersion({ version: '2.0.1', sha256: OTHER }, known, UNPINNED)
    refuseReusedVersion({ version: '2.0.0', sha256: OTHER }, known, { artifactSha256: OTHER, redeploy: true })
    refuseReusedVersion({ version: '0.9', sha256: OTHER }, known, UNPINNED)
    refuseReusedVersion({ version: '2.0.0', sha256: OTHER }, [], UNPINNED)
  })
})
