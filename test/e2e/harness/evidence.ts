import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { inspect } from 'node:util'
import type { Store } from '../../../hub/store.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { type LocalReport, localReportSchema } from '../../../src/install/reports/local-report.ts'
import { listTree } from '../../folders.ts'
import type { Stage } from './stage.ts'

/** A row of the hub's table of reports. */
interface ReportRow {
  kind: string
  slug: string
  version: string
  host_id: string
  status: string
  repo: string | null
  error_message: string | null
  started_at: string
  completed_at: string
}

/** Every report that the hub has accepted, oldest first. */
export function acceptedReports(stage: Pick<Stage, 'store'>): ReportRow[] {
  const rows = stage.store.db.prepare('SELECT * FROM reports ORDER BY seq').all()
  return rows as unknown as ReportRow[]
}

/** The local report of a run. */
export function readLocalReport(result: ActionResult): LocalReport {
  return JSON.parse(readFileSync(result.outputs['report-path'] ?? '', 'utf8'))
}

/**
 * The paths that a run without changes must not touch. Leaves out the entries of the action's own folders themselves,
 * the reports, the audit log, the tree records, the trash, and the action's auxiliary files.
 */
export function listHost(root: string): Record<string, string> {
  const own =
    /^\.hub-deploy($|\/(staging|snapshots(\/(plugins|extensions)(\/[^/]+)?)?)$|\/(reports|outbox|trees|trash|audit\.jsonl|reserve|kernel-lock|rename-probe)(\/|$))/
  return Object.fromEntries(Object.entries(listTree(root)).filter(([path]) => !own.test(path)))
}

/** The names in a folder of `.hub-deploy/`; none if there is no such folder. */
export function listOwn(stage: { readonly root: string }, folder: string): string[] {
  try {
    return readdirSync(join(stage.root, '.hub-deploy', folder)).sort()
  } catch {
    return []
  }
}

/** The commands of one kind (`error`, `notice`, ...) in a workflow log. */
export function commandsIn(log: string, kind: string): string[] {
  return log.split('\n').filter(line => line.startsWith(`::${kind} `) || line.startsWith(`::${kind}::`))
}

/** Asserts that a run leaves all installed and retained versions, the settings and `installed.json` as they were. */
export async function assertTouchesNoVersion(root: string, run: () => Promise<void>): Promise<void> {
  const before = listHost(root)
  await run()
  assert.deepEqual(listHost(root), before)
}

/** The mode and content of each path below the listed directory; for a symlink, its target. */
export type Listing = Readonly<Record<string, string>>

/** Lists the live trees of a host: `plugins/`, `addons/` and `extensions/`, with everything below them. */
export function listLive(root: string): Listing {
  return listSome(root, path => /^(plugins|addons|extensions)(\/|$)/.test(path))
}

/** Lists the live trees and the retained ones. */
export function listVersions(root: string): Listing {
  return listSome(
    root,
    path => /^(plugins|addons|extensions)(\/|$)/.test(path) || /^\.hub-deploy\/snapshots\/[^/]+\/[^/]+\/./.test(path),
  )
}

/** Lists everything below the project root that does not depend on the time or on the number of deployments. */
export function listLasting(root: string): Listing {
  const listing: Record<string, string> = listSome(
    root,
    path => !/^\.hub-deploy\/(reports\/|audit\.jsonl|installed\.json|rename-probe|reserve|trash\/|trees\/)/.test(path),
  )
  const names = new Map<string, string>()
  for (const [path, what] of Object.entries(listSome(root, isTreeRecord))) {
    const lasting = what.replace(INODE_AND_TIMES, '$1')
    const name = createHash('sha256').update(lasting).digest('hex')
    names.set(basename(path, '.tree'), name)
    listing[`.hub-deploy/trees/${name}`] = lasting
  }
  return { ...listing, '.hub-deploy/installed.json': timelessInstalled(root, names) }
}

const INODE_AND_TIMES = /(\t(?:[0-7]{1,4}|link|other)\t[^\t]*\t)[0-9]+\t-?[0-9]+\t-?[0-9]+(?=\t)/g

function isTreeRecord(path: string): boolean {
  return path.startsWith('.hub-deploy/trees/')
}

/**
 * Asserts that the host's live trees equal one of these listings in bytes, modes and symlinks. Returns that listing's
 * name.
 */
export function assertExactly(root: string, allowed: Readonly<Record<string, Listing>>): string {
  const live = listLive(root)
  const names = Object.keys(allowed)
  const name = names.find(candidate => isSame(live, allowed[candidate] as Listing))
  if (name === undefined)
    assert.deepEqual(
      live,
      allowed[names[0] as string],
      `the live trees of the host must be exactly: ${names.join(' or ')}`,
    )
  return name as string
}

/**
 * Asserts that no journal, lock, mark, staged tree or temporary file is left over, that no report waits in the outbox,
 * and that no deployment has two local reports.
 */
export function assertNothingStrays(root: string): void {
  const own = join(root, '.hub-deploy')
  const lasting = [
    'audit.jsonl',
    'installed.json',
    'kernel-lock',
    'outbox',
    'rename-probe',
    'reports',
    'reserve',
    'snapshots',
    'staging',
    'trash',
    'trees',
  ]
  assert.deepEqual(
    readdirSync(own).filter(name => !lasting.includes(name)),
    [],
  )
  assert.deepEqual(readdirSync(join(own, 'staging')), [])
  assert.deepEqual(readdirSync(join(own, 'outbox')), [])
  assert.deepEqual(
    readdirSync(own, { recursive: true, encoding: 'utf8' }).filter(path => path.endsWith('.tmp')),
    [],
  )
  readReports(root)
}

/** Reads the final local reports by deployment id, oldest first. Asserts that no deployment has more than one. */
export function readReports(root: string): Map<string, LocalReport> {
  const folder = join(root, '.hub-deploy', 'reports')
  const names = existsSync(folder) ? readdirSync(folder).filter(name => name.endsWith('.json')) : []
  const reports = names
    .toSorted()
    .map(name => localReportSchema.parse(JSON.parse(readFileSync(join(folder, name), 'utf8'))))
  const byId = new Map(reports.map(report => [report.deployment_id, report]))
  assert.equal(byId.size, reports.length, 'each deployment must have at most one local report')
  return byId
}

/** Asserts that the local reports, the audit log, the hub's reports and the record of installed parts agree. */
export function assertOneStory(root: string, hub: Store): void {
  const reports = readReports(root)
  for (const report of reports.values()) assertHubHeard(hub, report)
  assertAudited(root, reports)
  const last = [...reports.values()].findLast(report => report.outcome === 'success')
  if (last !== undefined) assertInstalled(root, last)
}

/** Asserts that the exit code and outputs of a run that ended by itself match its local report. Returns that report. */
export function assertReported(root: string, { exitCode, outputs }: ActionResult): LocalReport {
  const report = readReports(root).get(outputs['deployment-id'] ?? '')
  assert.ok(report, 'a run that ended must have a local report')
  assert.equal(exitCode, report.outcome === 'success' ? 0 : 1)
  assert.deepEqual(
    [outputs['outcome'], outputs['changed'], outputs['state'], outputs['version'], outputs['error-code']],
    [report.outcome, String(report.changed), report.state, report.version ?? '', report.error?.code ?? ''],
  )
  assert.equal(outputs['reported'], String(report.reported.accepted))
  return report
}

/** Asserts that no secret is in a file below these folders, or in these logs outside the commands that mask it. */
export function assertNoSecret(
  secrets: readonly string[],
  folders: readonly string[],
  logs: readonly string[] = [],
): void {
  const contents = folders.flatMap(folder => Object.entries(listTree(folder)))
  const shown = logs.map(log => log.replaceAll(/^::add-mask::.*$/gm, ''))
  for (const secret of secrets) {
    for (const [path, content] of contents) assert.ok(!content.includes(secret), `${path} contains a secret`)
    for (const log of shown) assert.ok(!log.includes(secret), `a log contains a secret:\n${log}`)
  }
}

/**
 * Asserts that a run with nothing to change or recover leaves the host as it was, except for the run's own report and
 * audit line.
 */
export async function assertSettled(root: string, runAgain: () => Promise<ActionResult>): Promise<void> {
  const before = listSome(root, isNoRecord)
  const { outputs, log } = await runAgain()
  assert.deepEqual([outputs['outcome'], outputs['changed']], ['success', 'false'], log)
  assert.deepEqual(listSome(root, isNoRecord), before)
}

function isNoRecord(path: string): boolean {
  return !/^\.hub-deploy\/(reports\/|trash\/|audit\.jsonl)/.test(path)
}

function listSome(root: string, isWanted: (path: string) => boolean): Record<string, string> {
  return Object.fromEntries(Object.entries(listTree(root)).filter(([path]) => isWanted(path)))
}

function isSame(a: Listing, b: Listing): boolean {
  const paths = Object.keys(a)
  return paths.length === Object.keys(b).length && paths.every(path => a[path] === b[path])
}

function timelessInstalled(root: string, treeRecords: ReadonlyMap<string, string>): string {
  const varying = new Set(['installed_at', 'retained_at', 'deployment_id', 'run_url'])
  const parsed = JSON.parse(readFileSync(join(root, '.hub-deploy', 'installed.json'), 'utf8'), (key, value) => {
    if (key === 'tree_record') return treeRecords.get(value)
    return varying.has(key) ? undefined : value
  })
  return inspect(parsed, { depth: null, sorted: true })
}

/**
 * Asserts that the hub has a report if and only if the local report says that the hub accepted it. If a run died while
 * it sent its report, the hub may get that report twice, but never two different reports.
 */
function assertHubHeard(hub: Store, report: LocalReport): void {
  const heard = hub.db
    .prepare('SELECT status, version FROM reports WHERE host_id = ? AND started_at = ?')
    .all(report.host_id, report.started_at)
  assert.equal(
    heard.length > 0,
    report.reported.accepted,
    'the hub must have this report if and only if the local report says that the hub accepted it',
  )
  for (const { status, version } of heard) {
    assert.deepEqual([status, version], [report.status, report.version ?? report.requested_version ?? 'unknown'])
  }
}

function assertAudited(root: string, reports: ReadonlyMap<string, LocalReport>): void {
  const lines = readFileSync(join(root, '.hub-deploy', 'audit.jsonl'), 'utf8')
    .split('\n')
    .slice(0, -1)
  const audited = lines.map(line => JSON.parse(line)).map(line => [line.deployment_id, line.outcome])
  const reported = [...reports.values()].map(report => [report.deployment_id, report.outcome])
  assert.deepEqual(
    audited.toSorted(),
    reported.toSorted(),
    'each local report must have one audit line, with the same outcome',
  )
}

function assertInstalled(root: string, report: LocalReport): void {
  const { installed } = JSON.parse(readFileSync(join(root, '.hub-deploy', 'installed.json'), 'utf8'))
  const row = installed.find((other: { slug: string }) => other.slug === report.slug)
  assert.deepEqual([row?.version, row?.artifact_sha256], [report.version, report.artifact_sha256])
}
