import { statSync } from 'node:fs'
import type { DeployError } from '../../core/errors.ts'
import { prepareHost } from '../host/readiness.ts'
import { closeDeployment } from '../reports/close.ts'
import { reportTimeout } from '../reports/host.ts'
import { buildLocalReport, type LocalReport, notSent, redactReport } from '../reports/local-report.ts'
import type { ReportSender } from '../reports/outbox.ts'
import { buildEnd, type DeploymentEnd } from '../transaction/end.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'
import { createDeploymentRecord, type DeploymentRecord } from '../transaction/record.ts'
import { type DeploymentTools, hostOf } from './deployment.ts'
import { recoverBeforeRefusal } from './recover-host.ts'
import type { EndedDeployment } from './run.ts'

export interface Refusal {
  error: DeployError
  facts: DeploymentFacts
  /** Undefined when the host must not be touched, or is not known. */
  projectRoot: string | undefined
  /** Undefined when the hub must not get a report, or cannot be reached with these inputs. */
  sender: ReportSender | undefined
}

/**
 * Ends a deployment that was refused before it began: with a local report when the project root exists, and a report to
 * the hub when there is a way to it (contract 4.3, rule 7). Creates no project root.
 */
export async function refuseDeployment(refusal: Refusal, tools: DeploymentTools): Promise<EndedDeployment> {
  const { error, facts, projectRoot, sender } = refusal
  const record = createDeploymentRecord(
    facts,
    [{ state: 'pending', at: tools.now().toISOString() }],
    tools.secrets.know,
  )
  const { code, message } = error
  const end = buildEnd(tools.now(), { outcome: 'failed', error: { code, message, step: null } })
  if (projectRoot === undefined || !isDirectorySync(projectRoot)) {
    const report = await reportToHub({ record, end }, sender, tools)
    return { report, reportPath: undefined, plannedSteps: [], error }
  }
  const host = hostOf(tools, { projectRoot, sender })
  await prepareHost(host.layout, tools.log).catch(() => {})
  const known = await recoverBeforeRefusal(host, end)
  return { ...(await closeDeployment(host, { record, end: known, address: sender?.address ?? null })), error }
}

/** Where no file can be written, the hub can still get a report. */
async function reportToHub(
  { record, end }: { record: DeploymentRecord; end: DeploymentEnd },
  sender: ReportSender | undefined,
  { log, secrets }: DeploymentTools,
): Promise<LocalReport> {
  const report = redactReport(buildLocalReport(record, end, notSent('not sent')), secrets.redact)
  if (sender === undefined) return report
  const delivery = await sender.send(report, { retry: true, timeoutMs: reportTimeout()() })
  const { attempts } = delivery
  if (delivery.accepted) return { ...report, reported: { accepted: true, attempts, error: null } }
  log.warning(`The hub did not accept the report of this run: ${delivery.error}`)
  return { ...report, reported: { accepted: false, attempts, error: secrets.redact(delivery.error) } }
}

function isDirectorySync(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}
