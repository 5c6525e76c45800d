import { open } from 'node:fs/promises'
import type { Layout } from './layout.ts'
import type { LocalReport } from './local-report.ts'

/** Appends the one line that stays for ever of a finished deployment. */
export async function appendAudit(
  layout: Layout,
  report: LocalReport,
  redact: (text: string) => string,
): Promise<void> {
  const { deployment_id, contract, kind, slug, id, version, previous_version, artifact_sha256, outcome, host_id } =
    report
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
    actor: report.run.actor,
    run_url: report.run.url,
  }
  const file = await open(layout.audit, 'a', 0o600)
  try {
    await file.appendFile(`${redact(JSON.stringify(line))}\n`)
    await file.sync()
  } finally {
    await file.close()
  }
}
