import assert from 'node:assert/strict'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { Mutation } from '../../scripts/mutants/mutations.ts'
import { openTrials, type Trials, testsOf } from '../../scripts/mutants/trials.ts'
import { temporaryDirectory, writeTree } from '../folders.ts'

const ROOT = join(import.meta.dirname, '../..')
const SOURCE = `export async function check(age: number, log: (line: string) => Promise<void>): Promise<string> {
  if (age < 18 && age !== 3) throw new Error('locked')
  const known: string | undefined = age > 99 ? undefined : 'known'
  if (known === undefined) return 'old'
  await log('checked')
  return known.padEnd(5 + 1)
}
`
const TEST = `import assert from 'node:assert/strict'
import { it } from 'node:test'
import { check } from '../src/check.ts'
it('refuses the young', async () => {
  await assert.rejects(check(17, async () => {}), { message: 'locked' })
})
it('lets others in', async () => {
  assert.equal(await check(18, async () => {}), 'known ')
})
it('waits for the log', async () => {
  let isDone = false
  await check(20, async () => {
    await new Promise(setImmediate)
    isDone = true
  })
  assert.ok(isDone)
})
`

describe('the mutants of a small checkout', () => {
  it('are each small mistake, in an order that the seed decides', t => {
    const [one, two] = ['1', '2'].map(seed => openSmallCheckout(t, seed).mutations.map(nameOf)) as [string[], string[]]
    assert.deepEqual(one.toSorted(), [
      '2: !== → ===',
      '2: && → ||',
      "2: 'locked' → 'step_failed'",
      '2: 18 → 19',
      '2: 3 → 4',
      '2: < → <=',
      '2: age < 18 && age !== 3 → !(age < 18 && age !== 3)',
      "2: if (age < 18 && age !== 3) throw new Error('locked') → ;",
      '3: 99 → 100',
      '3: > → >=',
      '3: age > 99 → !(age > 99)',
      '4: === → !==',
      "4: if (known === undefined) return 'old' → ;",
      "5: await log('checked') → ;",
      "5: await log('checked') → log('checked')",
      '6: + → -',
      '6: 1 → 2',
      '6: 5 → 6',
    ])
    assert.notDeepEqual(one, two)
    assert.deepEqual(one.toSorted(), two.toSorted())
    assert.deepEqual(openSmallCheckout(t, '1').mutations.map(nameOf), one)
  })

  it('die by the first test that fails, or survive, or are refused by the compiler', async t => {
    const ends: Record<string, string | undefined> = {
      '2: < → <=': 'killed by test/check.test.ts: lets others in',
      "5: await log('checked') → log('checked')": 'killed by test/check.test.ts: waits for the log',
      '2: 3 → 4': 'survived',
      "4: if (known === undefined) return 'old' → ;": 'refused',
    }
    const { root, mutations, run } = openSmallCheckout(t, '1')
    for (const [name, end] of Object.entries(ends)) {
      const trial = await run(mutations.find(mutation => nameOf(mutation) === name) as Mutation)
      const found = trial?.killedBy === undefined ? 'survived' : `killed by ${trial.killedBy}`
      assert.equal(trial === undefined ? 'refused' : found, end)
    }
    assert.equal(readFileSync(join(root, 'src/check.ts'), 'utf8'), SOURCE)
  })

  it('are not judged by tests that fail without them', async t => {
    const { mutations, run } = openSmallCheckout(t, '1', TEST.replace("'known '", "'unknown'"))
    await assert.rejects(run(mutations[0] as Mutation), { message: /^Without a mutant, .*: lets others in$/ })
  })
})

describe('the tests that a mutant must pass', () => {
  const imports = new Map([
    ['src/a.ts', []],
    ['src/b.ts', ['src/a.ts']],
    ['test/z.test.ts', ['src/a.ts']],
    ['test/a.test.ts', ['src/a.ts']],
    ['test/c.test.ts', ['src/b.ts']],
    ['test/e2e/d.test.ts', ['src/a.ts', 'src/b.ts']],
    ['src/c.ts', []],
    ['src/d.ts', ['src/c.ts']],
    ['test/stage.ts', ['src/c.ts']],
    ['test/d.test.ts', ['src/d.ts']],
    ['test/stage.test.ts', ['test/stage.ts']],
  ])

  it('are the unit tests that import its file, its own first', () => {
    assert.deepEqual(testsOf('src/a.ts', imports), ['test/a.test.ts', 'test/z.test.ts'])
  })

  it('are those that import an importer if none imports the file', () => {
    assert.deepEqual(testsOf('src/c.ts', imports), ['test/d.test.ts', 'test/stage.test.ts'])
  })
})

function openSmallCheckout(t: TestContext, seed: string, test = TEST): Trials & { readonly root: string } {
  const root = temporaryDirectory(t)
  writeTree(root, {
    'package.json': '{ "type": "module" }',
    'tsconfig.json': JSON.stringify({ extends: join(ROOT, 'tsconfig.json'), include: ['src', 'test'] }),
    'src/check.ts': SOURCE,
    'test/check.test.ts': test,
  })
  symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'))
  const trials = openTrials({ root, files: ['src/check.ts'], seed })
  t.after(() => trials.close())
  return { ...trials, root }
}

function nameOf({ line, what }: { readonly line: number; readonly what: string }): string {
  return `${line}: ${what}`
}
