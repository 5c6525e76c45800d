import { randomUUID } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, readdirSync, readSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { syncDirectory, syncFile } from '../files/durable-files.ts'
import { tryUnlinkSync } from '../files/trees/remove-tree.ts'
import { auditPath, type Layout } from '../host/layout.ts'
import { type LocalReport, type ReportFolder, redactReport } from './local-report.ts'

/** Follows no symlink and waits for no pipe. */
const APPEND = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK
/** How far back to look for a line that a dead run has already written. */
const TAIL_BYTES = 64 * 1024

const MAX_BYTES = 16 * 1024 * 1024
/** The maximum number of audit files: the current one and the earlier ones. */
const MAX_FILES = 4

/**
 * Appends one line for a finished deployment, durably. Does not repeat the outcome of a deployment whose run died just
 * after it wrote the line. A line that a crash cut off does not damage the next one. Once the file has reached 16 MiB,
 * a single rename adds the time to the file's name, and a new file begins. At most four files are kept.
 */
export async function appendAudit({ layout, secrets }: ReportFolder, report: LocalReport): Promise<void> {
  const known = redactReport(report, secrets)
  const { deployment_id, contract, kind, slug, id, version, previous_version, artifact_sha256, outcome } = known
  const { host_id, run, sources } = known
  const line = {
    at: report.completed_at,
    deployment_id,
    contract,
    kind,
    slug,
    id,
    version,
    previous_version,
    artifact_sha256,
    outcome,
    error_code: report.error?.code ?? null,
    host_id,
    actor: run.actor,
    run_url: run.url,
    ...(sources === undefined ? {} : { sources }),
  }
  const [path, text] = [auditPath(layout), JSON.stringify(line)]
  if ((await appendLine(path, text)) === 'written') return
  await rotate(layout)
  await appendLine(path, text)
}

/** Writes nothing into a full file. Also returns `written` if the file already has the line. */
async function appendLine(path: string, text: string): Promise<'written' | 'full'> {
  const fd = openSync(path, APPEND, 0o600)
  try {
    const lines = readTail(fd).split('\n')
    if (lines.some(known => keyOf(known) === keyOf(text))) return 'written'
    if (fstatSync(fd).size >= MAX_BYTES) return 'full'
    writeFileSync(fd, `${lines.at(-1) === '' ? '' : '\n'}${text}\n`)
    await syncFile(fd)
    return 'written'
  } finally {
    closeSync(fd)
  }
}

/** Never uses a name twice, so runs that rotate at the same time, or are killed, replace nothing. */
async function rotate(layout: Layout): Promise<void> {
  const time = new Date().toISOString().replaceAll(':', '-')
  renameSync(auditPath(layout), join(layout.own, `audit-${time}-${randomUUID().slice(0, 8)}.jsonl`))
  await syncDirectory(layout.own)
  const rotated = readdirSync(layout.own).filter(name => ROTATED.test(name))
  for (const name of rotated.toSorted().slice(0, 1 - MAX_FILES)) tryUnlinkSync(join(layout.own, name))
}

const ROTATED = /^audit-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-[0-9a-f]{8}\.jsonl$/

/**
 * Identifies a line by its deployment and outcome. Ignores the time, because a recovery may find the same outcome at
 * another time.
 */
function keyOf(line: string): string {
  return [/"deployment_id":"[^"]*"/, /"outcome":"[^"]*"/].map(field => field.exec(line)?.[0]).join()
}

function readTail(fd: number): string {
  const { size } = fstatSync(fd)
  const tail = Buffer.alloc(Math.min(size, TAIL_BYTES))
  return tail.toString('utf8', 0, readSync(fd, tail, 0, tail.length, size - tail.length))
}
