import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { InspectedPart, Inspection, PartDrift } from '../../../src/install/status.ts'
import { buildStatusSummary } from '../../../src/runner/summaries/status.ts'
import { rowOf, snapshotOf } from '../../install/prepared-host.ts'

const HOST = { name: 'app-1', root: '/srv/app' }

function partOf(id: string, drift?: PartDrift): InspectedPart {
  return { shelf: 'plugins', id, directory: 'plugins', row: rowOf({ id }), drift }
}

function summaryOf(more: Partial<Inspection>, error?: DeploymentError): string {
  const inspection = {
    activity: { kind: 'quiet' },
    parts: [],
    snapshots: [],
    unrecorded: [],
    isKnown: true,
    ...more,
  } as const
  return buildStatusSummary(inspection, { host: HOST, error, cut: [] })
}

describe('buildStatusSummary', () => {
  it('does not say that a part differs if the part could not be compared', () => {
    const unknown: PartDrift = { kind: 'not compared', why: 'There is no record of its files.', isPassing: false }
    const [first] = summaryOf({ parts: [partOf('a'), partOf('b', unknown)] }).split('\n')
    assert.equal(first, '### ⚠️ 1 of 2 parts could not be compared on app-1')
  })

  it('names the parts that were restored from a modified snapshot', () => {
    const [a, b] = ['a', 'b'].map(id => ({ ...partOf(id), row: rowOf({ id, version: '1.0.0', modified: true }) }))
    assert.match(
      summaryOf({ parts: [a as InspectedPart] }),
      /> plugins\/a 1\.0\.0 was restored from a snapshot that had/,
    )
    assert.match(
      summaryOf({ parts: [a, b] as InspectedPart[] }),
      /> plugins\/a 1\.0\.0, plugins\/b 1\.0\.0 were each restored from a snapshot that had .* their artifacts\.\n/,
    )
  })

  it('names unrecorded directories, and does not call such a host empty', () => {
    const unrecorded = Array.from({ length: 22 }, (_, index) => `plugins/by-hand-${index}`)
    const summary = summaryOf({ unrecorded })
    assert.match(summary, /^### ⚠️ Nothing is recorded as installed on app-1\n/)
    assert.match(summary, /not compared: plugins\/by-hand-0, .* and 2 more\.\n/)
  })

  it('shows the result, the differences, and the parts, starting with those that differ', () => {
    const snapshots = [
      snapshotOf('1-1.0.0', { version: '1.0.0' }),
      snapshotOf('2-1.1.0', { version: '1.1.0', modified: true }),
    ]
    const paths = [
      { path: 'src/main.py', how: 'changed' as const },
      { path: 'run.sh', how: 'mode' as const },
    ]
    assert.equal(
      summaryOf({
        parts: [
          { ...partOf('a-intact'), row: rowOf({ id: 'a-intact', service_pending: true }) },
          partOf('greeter', { kind: 'differs', paths, count: 3 }),
          partOf('gone', { kind: 'no directory', instead: 'nothing' }),
        ],
        snapshots: snapshots.map(row => ({
          shelf: 'plugins',
          id: 'greeter',
          directory: 'plugins',
          row,
          path: row.name,
        })),
      }),
      `### ⚠️ 2 of 3 parts differ from what was installed on app-1

> [!WARNING]
> - Files on this host differ from what was installed: plugins/greeter/src/main.py (changed), plugins/greeter/run.sh (mode or owner changed), plugins/gone (missing) and 1 more.
> - The service of a-intact could not be restarted or checked after a rollback. The next run whose host config names it does that.

| Part | Version | Installed | Files | Snapshots |
| --- | --- | --- | --- | --- |
| <code>plugins/greeter</code> | 2.0.0 | 2026-01-02 03:04 UTC | ⚠️ 3 differ | 1.0.0, 1.1.0 (modified) |
| <code>plugins/gone</code> | 2.0.0 | 2026-01-02 03:04 UTC | ⚠️ missing | none |
| <code>plugins/a-intact</code> | 2.0.0 | 2026-01-02 03:04 UTC | as installed | none |

Project root: <code>/srv/app</code>
`,
    )
  })

  it('shows the error in place of the findings, because the error repeats them', () => {
    const error = new DeploymentError('drift_found', 'Files differ.')
    const drift = { kind: 'no directory', instead: 'symlink' } as const
    const summary = summaryOf({ parts: [partOf('greeter', drift)] }, error)
    assert.match(
      summary,
      /\n\n\*\*Why:\*\* Files differ\. \(<code>drift&#95;found<\/code>\)\\\n\*\*Next:\*\* .*\n\n\| Part/,
    )
  })

  it('shows the first 300 of many parts, and says how many more there are', () => {
    const summary = summaryOf({ parts: Array.from({ length: 1000 }, (_, index) => partOf(`part-${index}`)) })
    assert.match(summary, /And 700 more parts\./)
    assert.equal(summary.match(/as installed \|/g)?.length, 300)
  })
})
