import assert from 'node:assert/strict'
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { Change, PlannedChange } from '../../../src/install/changes/change.ts'
import type { Identity } from '../../../src/install/changes/move.ts'
import type { Layout } from '../../../src/install/host/layout.ts'
import type { DeploymentFacts } from '../../../src/install/journal/facts.ts'
import type { JournalRecord } from '../../../src/install/journal/records.ts'
import type { HostContext } from '../../../src/install/reports/host.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { listTree, writeTree } from '../../folders.ts'
import { journalText } from '../journal/journal-text.ts'
import { hostOf } from '../prepared-deployment.ts'
import {
  type CollectedLog,
  collectLog,
  DEPLOYMENT_ID,
  factsOf,
  prepareTemporaryHost,
  type RecordingSender,
  senderThat,
} from '../prepared-host.ts'

export const STAGING = `.hub-deploy/staging/${DEPLOYMENT_ID}`
export const SNAPSHOT = '.hub-deploy/snapshots/plugins/greeter/1-1.0.0'

/** The changes of an update with a kept path and new settings, in the order in which the steps make them. */
export const UPDATE: readonly PlannedChange[] = [
  { type: 'move', from: 'plugins/greeter', to: SNAPSHOT },
  { type: 'move', from: `${SNAPSHOT}/data`, to: `${STAGING}/tree/data` },
  { type: 'move', from: `${STAGING}/tree`, to: 'plugins/greeter' },
  { type: 'create_file', staged: `${STAGING}/greeter.env`, path: 'plugins/greeter.env' },
]

/** A journal record without the inodes and numbers that `writeJournal` adds. */
export type SceneRecord =
  | Exclude<JournalRecord, { record: 'change' | 'undone' }>
  | { record: 'change'; change: PlannedChange }
  | { record: 'undone'; change: PlannedChange; was_made: boolean; lost?: string }

/** A host with an installed version and a staged one. It has no journal until `writeJournal` is called. */
export interface Scene {
  layout: Layout
  host: HostContext
  log: CollectedLog
  sender: RecordingSender
  /** Lists `plugins/`. */
  plugins(): Record<string, string>
  /** Returns the change with the inode that `writeJournal` gives it. */
  withInode(change: PlannedChange): Change
  /** Adds the identities of moved files and the numbers of undone changes to the records, and writes the journal. */
  writeJournal(records: readonly SceneRecord[], torn?: string): void
  journalText(): string
  reports(): LocalReport[]
}

export async function makeScene(t: TestContext): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const sender = senderThat({ accepted: true, attempts: 1 })
  writeTree(layout.root, {
    'plugins/greeter/main.py': 'old',
    'plugins/greeter/data/db': 'rows',
    'plugins/other/main.py': 'other',
    [`${STAGING}/tree/main.py`]: 'new',
    [`${STAGING}/greeter.env`]: 'A=1',
  })
  mkdirSync(join(layout.snapshots, 'plugins/greeter'), { recursive: true })
  const places = { 'plugins/greeter': 'plugins/greeter', [`${SNAPSHOT}/data`]: 'plugins/greeter/data' }
  const settings = { [`${STAGING}/greeter.env`]: `${STAGING}/greeter.env` }
  const known = new Map(
    Object.entries({ ...places, [`${STAGING}/tree`]: `${STAGING}/tree`, ...settings }).map(([from, path]) => [
      from,
      identityOf(join(layout.root, path)),
    ]),
  )
  const identify = (path: string): Identity => known.get(path) ?? { ino: '1', times: '1 1' }
  const withInode = (change: PlannedChange): Change => {
    if (change.type === 'make_directory') return change
    if (change.type === 'move') return { ...change, ...identify(change.from) }
    return { ...change, ino: identify(change.staged).ino }
  }
  return {
    layout,
    log,
    sender,
    host: hostOf(layout, { log, sender }),
    plugins: () => listTree(join(layout.root, 'plugins')),
    withInode,
    writeJournal: (records, torn) => {
      const complete = records.map(record => completed(record, records, withInode))
      writeFileSync(layout.journal, journalText(complete, torn))
    },
    journalText: () => readFileSync(layout.journal, 'utf8'),
    reports: () =>
      readdirSync(layout.reports).map(name => JSON.parse(readFileSync(join(layout.reports, name), 'utf8'))),
  }
}

function identityOf(path: string): Identity {
  const { ino, mtimeNs, birthtimeNs } = lstatSync(path, { bigint: true })
  return { ino: String(ino), times: `${mtimeNs} ${birthtimeNs}` }
}

export function begun(
  sender: RecordingSender,
  states: readonly string[] = ['pending', 'fetching', 'installing'],
  facts: DeploymentFacts = factsOf(),
): SceneRecord[] {
  return [
    { record: 'begin', facts, report_address: sender.address, keep_paths: ['data'] },
    ...states.map(state => ({ record: 'state' as const, state, at: '2026-01-02T03:04:06.000Z' })),
  ]
}

export function announced(changes: readonly PlannedChange[]): SceneRecord[] {
  return changes.map(change => ({ record: 'change', change }))
}

export function undone(changes: readonly PlannedChange[]): SceneRecord[] {
  return changes.map(change => ({ record: 'undone', change, was_made: true }))
}

function completed(
  record: SceneRecord,
  records: readonly SceneRecord[],
  withInode: (change: PlannedChange) => Change,
): JournalRecord {
  if (record.record === 'change') return { record: 'change', change: withInode(record.change) }
  if (record.record !== 'undone') return record
  const { change, ...undone } = record
  const of = records.findIndex(other => other.record === 'change' && other.change === change) + 1
  return { ...undone, of }
}

/** The states of the only report, without their times. */
export function reportedStates(scene: Scene): string[] {
  const [report, ...others] = scene.reports()
  assert.equal(others.length, 0)
  return report?.states.map(({ state }) => state) ?? []
}

/** Asserts that there is no journal, and that nothing is staged. */
export function assertSettled({ layout }: Scene): void {
  assert.ok(!existsSync(layout.journal))
  assert.deepEqual(readdirSync(layout.staging), [])
}

/** Asserts that there is one local report, with these fields, and that one report, with the same outcome, was sent. */
export function assertReported(scene: Scene, expected: Partial<LocalReport>): void {
  const reports = scene.reports()
  assert.equal(reports.length, 1)
  for (const [key, value] of Object.entries(expected)) {
    assert.deepEqual(reports[0]?.[key as keyof LocalReport], value, key)
  }
  assert.deepEqual(
    scene.sender.sent.map(({ report }) => [report.deployment_id, report.outcome]),
    [[DEPLOYMENT_ID, expected.outcome]],
  )
}
