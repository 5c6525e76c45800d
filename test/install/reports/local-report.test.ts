import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { recordInstalled } from '../../../src/install/host/record.ts'
import {
  describeRecovered,
  findEndedReport,
  pruneReports,
  readRunningVersion,
  restoredUnhealthy,
  rollbackProblems,
  writeLocalReport,
} from '../../../src/install/reports/local-report.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'
import { journalText } from '../journal/journal-text.ts'
import { hostOf } from '../prepared-deployment.ts'
import { factsOf, prepareTemporaryHost, reportOf, rowOf } from '../prepared-host.ts'

describe('readRunningVersion', () => {
  it('returns the recorded version only if the directory of the plugin exists', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf()], removed: [] })
    assert.equal(readRunningVersion(layout, factsOf()), null)
    writeTree(layout.root, { 'plugins/greeter/a': '' })
    assert.equal(readRunningVersion(layout, factsOf()), '2.0.0')
  })

  it('returns the version that a rollback has committed but not recorded, although it was installed earlier', async t => {
    const layout = await prepareTemporaryHost(t)
    const project = { contract: 'project', slug: 'app', artifact_sha256: null } as const
    const newer = rowOf({ ...project, version: '2.0.0', project_version: '2.0.0', installation: 2 })
    await recordInstalled(layout, { rows: [newer], removed: [] })
    writeTree(layout.root, { 'plugins/greeter/plugin.yaml': 'name: greeter\nversion: 1.0.0\n' })
    const facts = factsOf({ contract: 'project', kind: null, slug: 'app', id: null, rollback_of: '2.0.0' })
    const restored = { ...newer, version: '1.0.0', project_version: '1.0.0', installation: 1 }
    const commit = { record: 'commit', at: facts.started_at, rows: [restored], removed: [], discard: [] }
    writeFileSync(
      layout.journal,
      journalText([{ record: 'begin', facts, report_address: null, keep_paths: [] }, commit]),
    )
    assert.equal(readRunningVersion(layout, facts), '1.0.0')
  })

  it('returns the version of a project only if all its parts are there', async t => {
    const layout = await prepareTemporaryHost(t)
    const project = { contract: 'project', slug: 'app', project_version: '2.0.0' } as const
    await recordInstalled(layout, { rows: [rowOf(project), rowOf({ ...project, id: 'other' })], removed: [] })
    const facts = factsOf({ contract: 'project', kind: null, slug: 'app', id: null })
    writeTree(layout.root, { 'plugins/greeter/a': '' })
    assert.equal(readRunningVersion(layout, facts), null)
    writeTree(layout.root, { 'plugins/other/a': '' })
    assert.equal(readRunningVersion(layout, facts), '2.0.0')
  })

  it('does not throw if the directory of the plugin cannot be examined', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf({ directory: 'loop' })], removed: [] })
    symlinkSync('loop', join(layout.root, 'loop'))
    assert.equal(readRunningVersion(layout, factsOf()), null)
  })
})

describe('describeRecovered', () => {
  const sentences = [
    ['failed', '1.0.0', 'it had changed no file, and 1.0.0 still runs.'],
    ['failed', null, 'it had changed no file, and no version is known to run.'],
    ['rolled_back', '1.0.0', 'it was rolled back to 1.0.0.'],
    ['rolled_back', null, 'it was rolled back, and no version is known to run.'],
    ['success', '2.0.0', 'it had been completed, and 2.0.0 runs.'],
  ] as const
  for (const [outcome, running_version, end] of sentences)
    it(`does not say that the recovery failed if the deployment ended as ${outcome}, with ${running_version} installed`, () => {
      const sentence = describeRecovered(reportOf({ outcome, running_version, version: '2.0.0' }))
      assert.equal(sentence, `The interrupted deployment of greeter 2.0.0 was recovered: ${end}`)
    })

  for (const [name, facts, subject] of [
    ['a rollback', { rollback_of: '2.0.0', version: '1.0.0' }, 'rollback of greeter to 1.0.0'],
    [
      'a rollback of which only the id is known',
      { rollback_of: null, slug: null, version: null },
      'rollback of greeter',
    ],
    ['a run of which nothing is known', { slug: null, id: null, version: null }, 'deployment'],
  ] as const)
    it(`names ${name}`, () => {
      const sentence = describeRecovered(reportOf({ ...facts, outcome: 'failed', running_version: '2.0.0' }))
      assert.equal(sentence, `The interrupted ${subject} was recovered: it had changed no file, and 2.0.0 still runs.`)
    })
})

const ROLLBACK = { restored: true, problems: ['it answers 500'], verified: true, healthy: false }

describe('restoredUnhealthy', () => {
  const rows = [
    ['the previous version', {}, / 1\.0\.0, which is installed again, is not healthy on host-1: .* it answers 500\.$/],
    [
      'files that this action had not installed',
      { previous_version: null, unrecorded: true },
      / the previous version, which is installed again, is not healthy on host-1: .* it answers 500\.$/,
    ],
    [
      'nothing',
      { previous_version: null },
      /, but a service on host-1 is not as it was before: repair that service\. it answers 500\.$/,
    ],
  ] as const
  for (const [replaced, facts, sentence] of rows)
    it(`describes the end of a rollback whose deployment replaced ${replaced}`, () => {
      assert.match(restoredUnhealthy(reportOf({ ...facts, rollback: ROLLBACK })) ?? '', sentence)
    })

  it('returns undefined if the restored version is healthy or was not checked, and without a rollback', () => {
    for (const healthy of [true, null])
      assert.equal(restoredUnhealthy(reportOf({ rollback: { ...ROLLBACK, healthy } })), undefined)
    assert.equal(restoredUnhealthy(reportOf()), undefined)
  })
})

describe('rollbackProblems', () => {
  const rows = [
    ['exit code 1', 'step_failed', ['The same happened again.', 'it answers 500.']],
    ['s1: exit code 1', 'step_failed', ['The same happened again.', 'it answers 500.']],
    ['exit code 1', 'unhealthy', ['exit code 1.', 'it answers 500.']],
    ['no time was left.', 'cancelled', ['exit code 1.', 'it answers 500.']],
  ] as const
  for (const [message, code, sentences] of rows)
    it(`returns sentences after the cause ${code}: ${message}`, () => {
      const report = {
        rollback: { restored: true, problems: ['exit code 1', 'it answers 500'], verified: true, healthy: null },
        error: { code, message, step: 's1' },
      }
      assert.deepEqual(rollbackProblems(report), sentences)
    })

  it('returns no sentence if there was no rollback', () => {
    assert.deepEqual(rollbackProblems({ rollback: null, error: null }), [])
  })
})

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
      'the oldest, even if they were written while the clock was ahead': {
        files: [`8-${at(1, 'greeter')}`, `9-${at(9, 'greeter')}`, `000010-${at(2, 'greeter')}`],
        newest: `000010-${at(2, 'greeter')}`,
        keep: 2,
        gone: [`8-${at(1, 'greeter')}`],
      },
      'all but the one just written, even if its number is not the highest': {
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

describe('writeLocalReport', () => {
  it('numbers the reports in the order of the runs, and rewrites that of the same run', async t => {
    const layout = await prepareTemporaryHost(t)
    const times = ['2026-01-02T05:00:00.000Z', '2026-01-02T03:00:00.000Z', '2026-01-02T04:00:00.000Z']
    const reports = times.map(started_at => reportOf({ deployment_id: randomUUID(), started_at }))
    for (const report of [...reports, ...reports]) await writeLocalReport(hostOf(layout), report)
    assert.deepEqual(
      readdirSync(layout.reports).toSorted(),
      times.map((time, nth) => `00000${nth + 1}-${time.replaceAll(':', '-')}-greeter.json`),
    )
    const last = reports.at(-1)?.deployment_id ?? ''
    assert.equal(findEndedReport(layout, last)?.report.started_at, times[2])
  })

  it('replaces no report of another run that started in the same millisecond', async t => {
    const layout = await prepareTemporaryHost(t)
    const [first, second] = [reportOf(), reportOf({ deployment_id: randomUUID() })]
    for (const report of [first, second, first]) await writeLocalReport(hostOf(layout), report)
    assert.equal(readdirSync(layout.reports).length, 2)
    for (const { deployment_id: id } of [first, second])
      assert.equal(findEndedReport(layout, id)?.report.deployment_id, id)
  })
})
