import { z } from 'zod'
import type { Store } from '../store.ts'
import { inTransaction } from '../transactions.ts'
import { HOST, newest } from './newest-report.ts'

/** Not `fleet_seq`: hubs that used that name ordered reports differently, so this hub applies all reports once more. */
const APPLIED = 'fleet_seq_by_completion'
const BATCH = 10_000

/** Applies the reports that are not applied yet, such as those from an older hub. Usually reads only two numbers. */
export function catchUpWithReports(store: Store): void {
  if (newestReport(store) > appliedReport(store)) inTransaction(store, () => applyReports(store))
}

/** Applies all reports since the last applied one. Must run in a transaction. */
export function applyReports({ db }: Pick<Store, 'db'>): void {
  const last = newestReport({ db })
  const hosts = db.prepare(`SELECT DISTINCT ${HOST.join(', ')} FROM reports WHERE seq > ? AND seq <= ?`)
  const [read, save] = [db.prepare(STATE_OF_HOST), db.prepare(SAVE)]
  for (let from = appliedReport({ db }); from < last; from += BATCH) {
    const rows = hosts.all(from, from + BATCH)
    for (const host of rows.map(row => hostSchema.parse(row)))
      save.run(fleetRow(host, stateSchema.parse(read.get(host))))
  }
  db.prepare('INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)').run(APPLIED, String(last))
}

/**
 * Removes hosts whose reports were all pruned, and updates hosts that lost their newest report. Must run in a
 * transaction.
 */
export function applyPruning({ db }: Pick<Store, 'db'>): void {
  const pruned = db.prepare(`SELECT ${HOST.join(', ')} FROM fleet WHERE newest_seq NOT IN (SELECT seq FROM reports)`)
  const [read, save] = [db.prepare(STATE_OF_HOST), db.prepare(SAVE)]
  const forget = db.prepare(`DELETE FROM fleet WHERE ${HOST.map(name => `${name} = :${name}`).join(' AND ')}`)
  for (const host of pruned.all().map(row => hostSchema.parse(row))) {
    const state = read.get(host)
    if (state === undefined) forget.run(host)
    else save.run(fleetRow(host, stateSchema.parse(state)))
  }
}

/** The form in which a filter compares texts. */
export function searchable(text: string): string {
  return text.normalize('NFC').toLowerCase()
}

const hostSchema = z.object({ kind: z.string(), slug: z.string(), deployer_id: z.string(), host_id: z.string() })

const stateSchema = z.object({
  newest_seq: z.number(),
  attempted_version: z.string(),
  needs_attention: z.number(),
  success_seq: z.number().nullable(),
  running_version: z.string().nullable(),
})

function fleetRow(host: z.infer<typeof hostSchema>, { attempted_version, ...state }: z.infer<typeof stateSchema>) {
  const words = [host.host_id, host.slug, host.kind, attempted_version, state.running_version ?? ''].join('\n')
  return { ...host, ...state, words: searchable(words), host_order: naturalOrder(host.host_id) }
}

const STATE_OF_HOST = `
  SELECT last.seq AS newest_seq, last.version AS attempted_version, last.status <> 'success' AS needs_attention,
         good.seq AS success_seq, good.version AS running_version
  FROM (SELECT :kind AS kind, :slug AS slug, :deployer_id AS deployer_id, :host_id AS host_id) AS hosts
  JOIN reports AS last ON last.seq = (${newest('seq', 'hosts')})
  LEFT JOIN reports AS good ON good.seq = (${newest('seq', 'hosts', { isSuccess: true })})`

const SAVE = `
  INSERT OR REPLACE INTO fleet (kind, slug, deployer_id, host_id, host_order, words, needs_attention, newest_seq,
                                success_seq, running_version)
  VALUES (:kind, :slug, :deployer_id, :host_id, :host_order, :words, :needs_attention, :newest_seq,
          :success_seq, :running_version)`

/** A key that sorts app-2 before app-10: each number is preceded by its length. */
function naturalOrder(name: string): string {
  return searchable(name).replace(/\d+/g, digits => {
    const number = digits.replace(/^0+(?=\d)/, '')
    return `${String(number.length).padStart(3, '0')}${number}`
  })
}

function newestReport({ db }: Pick<Store, 'db'>): number {
  return Number(db.prepare('SELECT max(seq) AS seq FROM reports').get()?.['seq'] ?? 0)
}

function appliedReport({ db }: Pick<Store, 'db'>): number {
  return Number(db.prepare('SELECT value FROM settings WHERE name = ?').get(APPLIED)?.['value'] ?? 0)
}
