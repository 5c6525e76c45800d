import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { isOlderVersion, isSameVersion } from '../../../src/core/trust/versions.ts'

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
    ['2024.01.02', '2024.1.1', undefined],
  ] as const
  for (const [candidate, installed, older] of cases) {
    it(`${candidate} against ${installed}: ${older}`, () => assert.equal(isOlderVersion(candidate, installed), older))
  }
})
