import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { pruneReports } from '../../../src/install/reports/prune-reports.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

const ID = '7f6c7a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
const at = (day: number, rest: string) => `2026-01-0${day}T03-04-05.678Z-${rest}.json`

describe('pruneReports', () => {
  const cases: Record<string, { files: string[]; slug?: string | null; newest: string; keep: number; gone: string[] }> =
    {
      'the oldest of the same part': {
        files: [at(1, 'greeter'), at(2, 'greeter'), at(3, 'greeter')],
        newest: at(3, 'greeter'),
        keep: 2,
        gone: [at(1, 'greeter')],
      },
      'no report of another part': {
        files: [at(1, 'greeter-web'), at(1, 'shop'), at(2, 'greeter')],
        newest: at(2, 'greeter'),
        keep: 1,
        gone: [],
      },
      'those of the same millisecond too': {
        files: [at(1, 'greeter'), at(1, `greeter-${ID}`), at(2, 'greeter')],
        newest: at(2, 'greeter'),
        keep: 1,
        gone: [at(1, 'greeter'), at(1, `greeter-${ID}`)],
      },
      'those of runs without a known name': {
        files: [at(1, ID), at(2, 'greeter'), at(3, ID.replace('7', '8'))],
        slug: null,
        newest: at(3, ID.replace('7', '8')),
        keep: 1,
        gone: [at(1, ID)],
      },
      'no report of another project whose id is a UUID too': {
        files: [at(1, ID), at(2, ID.replace('7', '8')), at(3, ID.replace('7', '8'))],
        slug: ID.replace('7', '8'),
        newest: at(3, ID.replace('7', '8')),
        keep: 1,
        gone: [at(2, ID.replace('7', '8'))],
      },
      'all but the one just written, even if the clock was set back': {
        files: [at(1, 'greeter'), at(2, 'greeter'), at(3, 'greeter')],
        newest: at(1, 'greeter'),
        keep: 1,
        gone: [at(2, 'greeter'), at(3, 'greeter')],
      },
      'nothing that is not a report': {
        files: ['notes.json', 'greeter.json', at(1, 'greeter').replace('.json', '.txt'), at(2, 'greeter')],
        newest: at(2, 'greeter'),
        keep: 1,
        gone: [],
      },
    }
  for (const [name, { files, slug = 'greeter', newest, keep, gone }] of Object.entries(cases)) {
    it(`removes ${name}`, t => {
      const folder = temporaryDirectory(t)
      for (const file of files)
        writeFileSync(join(folder, file), JSON.stringify({ slug: file.includes('greeter') ? 'greeter' : slug }))
      pruneReports(join(folder, newest), slug, keep)
      assert.deepEqual(readdirSync(folder).toSorted(), files.filter(file => !gone.includes(file)).toSorted())
    })
  }

  it('does not fail a run because of a directory in place of a report, or a missing folder', t => {
    const folder = temporaryDirectory(t)
    mkdirSync(join(folder, at(1, 'greeter')))
    writeFileSync(join(folder, at(2, 'greeter')), '{}')
    pruneReports(join(folder, at(2, 'greeter')), 'greeter', 1)
    pruneReports(join(folder, 'gone', at(2, 'greeter')), 'greeter', 1)
    assert.equal(readdirSync(folder).length, 2)
  })
})
