import { type OpenFile, open } from '../files/direct-fs.ts'
import type { Layout } from '../host/layout.ts'
import { type LocalReport, redactReport } from './local-report.ts'

/** How far back a line is looked for that a dead run wrote before its recovery repeats it. */
const TAIL_BYTES = 64 * 1024

/**
 * Appends the one line that stays for ever of a finished deployment, durably. One that stands there already, because the
 * run died just after it, is not repeated; a line that was cut off by a crash does not damage the next.
 */
export async function appendAudit(
  layout: Layout,
  report: LocalReport,
  redact: (text: string) => string,
): Promise<void> {
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
  const file = await open(layout.audit, 'a+', 0o600)
  try {
    const lines = (await readTail(file)).split('\n')
    if (lines.includes(text)) return
    await file.write(`${lines.at(-1) === '' ? '' : '\n'}${text}\n`)
    await file.sync()
  } finally {
    await file.close()
  }
}

async function readTail(file: OpenFile): Promise<string> {
  const { size } = await file.stat()
  const length = Math.min(size, TAIL_BYTES)
  return (await file.read(length, size - length)).toString('utf8')
}
