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
    ['2024.05.01-2', '2024.05.01-1', undefined],
    ['1.0-1', '1.0', undefined],
    ['2024.05.01', '2024-05-02', undefined],
    ['1.0.0', '1.0.0-x.y.0.1+z', false],
    ['a1b2c3d', 'd3c2b1a', undefined],
    ['nightly', 'nightly', false],
  ] as const
  for (const [candidate, installed, older] of cases) {
    it(`${candidate} against ${installed}: ${older}`, () => assert.equal(isOlderVersion(candidate, installed), older))
  }
})
