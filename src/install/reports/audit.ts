import { closeSync, constants, fstatSync, openSync, readSync, writeFileSync } from 'node:fs'
import { syncFile } from '../files/durable-files.ts'
import { auditPath } from '../host/layout.ts'
import { type LocalReport, type ReportFolder, redactReport } from './local-report.ts'

/** Follows no symlink and waits for no pipe. */
const APPEND = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK
/** How far back to look for a line that a dead run has already written. */
const TAIL_BYTES = 64 * 1024

/**
 * Appends one line for a finished deployment, durably; it stays for ever. Does not repeat a line that is already there,
 * because the run died just after it. A line that a crash cut off does not damage the next.
 */
export async function appendAudit({ layout, redact }: ReportFolder, report: LocalReport): Promise<void> {
  const { deployment_id, contract, kind, slug, id, version, previous_version, artifact_sha256, outcome, host_id, run } =
    redactReport(report, redact)
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
  }
  const text = JSON.stringify(line)
  const fd = openSync(auditPath(layout), APPEND, 0o600)
  try {
    const lines = readTail(fd).split('\n')
    if (lines.includes(text)) return
    writeFileSync(fd, `${lines.at(-1) === '' ? '' : '\n'}${text}\n`)
    await syncFile(fd)
  } finally {
    closeSync(fd)
  }
}

function readTail(fd: number): string {
  const { size } = fstatSync(fd)
  const tail = Buffer.alloc(Math.min(size, TAIL_BYTES))
  return tail.toString('utf8', 0, readSync(fd, tail, 0, tail.length, size - tail.length))
}
