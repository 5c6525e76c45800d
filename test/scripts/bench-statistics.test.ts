import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { fitExponent, median } from '../../bench/measure.ts'
import { selfTimes, syscallTimes } from '../../bench/reports/profile.ts'
import { replaceSection } from '../../bench/results.ts'
import { createRandom } from '../../bench/source-tree.ts'

describe('the median', () => {
  const CASES = [
    { of: [3], is: 3 },
    { of: [9, 1, 5], is: 5 },
    { of: [10, 9, 1, 2], is: 5.5 },
  ]
  for (const { of, is } of CASES) {
    it(`of ${of.join(', ')} is ${is}`, () => assert.equal(median(of), is))
  }

  it('throws for no values', () => assert.throws(() => median([]), RangeError))
})

describe('the fitted exponent', () => {
  it('is exact for any power law', () => {
    const exponents = fc.double({ min: -2, max: 3, noNaN: true })
    const factors = fc.double({ min: 0.01, max: 100, noNaN: true })
    fc.assert(
      fc.property(exponents, factors, (exponent, factor) => {
        const points = [1, 4, 15, 60].map(x => [x, factor * x ** exponent] as const)
        assert.ok(Math.abs(fitExponent(points) - exponent) < 1e-9)
      }),
    )
  })
})

describe('the random numbers', () => {
  it('depend only on the seed', () => {
    const draw = (seed: number) => Array.from({ length: 5 }, createRandom(seed))
    assert.deepEqual(draw(7), draw(7))
    assert.notDeepEqual(draw(7), draw(8))
    assert.ok(draw(7).every(number => number >= 0 && number < 1))
  })
})

describe('the times of system calls', () => {
  it('include finished and resumed calls, and skip lines without a time', () => {
    const trace = [
      '12 rename("a", "b") = 0 <0.002000>',
      '13 rename("c", "d" <unfinished ...>',
      '12 openat(AT_FDCWD</>, "<0.5>", O_RDONLY) = 3</x> <0.000500>',
      '13 <... rename resumed>) = 0 <0.001000>',
      '12 +++ exited with 0 +++',
    ]
    assert.deepEqual(syscallTimes(trace.join('\n')), [
      { name: 'rename', calls: 2, ms: 3 },
      { name: 'openat', calls: 1, ms: 0.5 },
    ])
  })

  it('list each synced record separately', () => {
    const temporary = 'installed.json.42.00000000-0000-4000-8000-000000000000.tmp'
    const trace = [
      '12 fsync(3</host/.hub-deploy/journal.jsonl> <unfinished ...>',
      `13 fsync(4</host/.hub-deploy/${temporary}>) = 0 <0.002000>`,
      '12 <... fsync resumed>) = 0 <0.004000>',
      '12 fsync(5</host/.hub-deploy>) = 0 <0.001000>',
    ]
    assert.deepEqual(syscallTimes(trace.join('\n')), [
      { name: 'fsync journal.jsonl', calls: 1, ms: 4 },
      { name: 'fsync installed.json', calls: 1, ms: 2 },
      { name: 'fsync .hub-deploy', calls: 1, ms: 1 },
    ])
  })
})

describe('the times of functions', () => {
  it('exclude callees and idle time', () => {
    const node = (id: number, functionName: string, url = '') => ({ id, callFrame: { functionName, url } })
    const profile = {
      nodes: [node(1, '(idle)'), node(2, 'open', 'file:///dist/index.js'), node(3, '')],
      samples: [1, 2, 3, 2],
      timeDeltas: [9_000, 1_000, 1_000, 2_000],
    }
    assert.deepEqual(selfTimes([profile]), [
      { name: 'open in index.js', ms: 3, share: 0.75 },
      { name: '(anonymous)', ms: 1, share: 0.25 },
    ])
  })
})

describe('a section of the page', () => {
  it('is replaced between its markers', () => {
    const page = 'before\n<!-- races -->\nold\n<!-- /races -->\nafter\n'
    assert.equal(replaceSection(page, 'races', 'new'), 'before\n<!-- races -->\n\nnew\n\n<!-- /races -->\nafter\n')
  })

  it('throws without its markers', () => {
    assert.throws(() => replaceSection('nothing', 'races', 'new'), { message: /has no <!-- races --> followed by/ })
  })
})
