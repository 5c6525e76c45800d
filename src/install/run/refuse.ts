import { statSync } from 'node:fs'
import type { DeployError } from '../../core/errors.ts'
import { asSentence } from '../../core/text.ts'
import type { SourceFile } from '../../core/yaml/problems.ts'
import { UntouchableHostError } from '../host/ownership.ts'
import { buildEnd, type DeploymentEnd, type DeploymentFacts } from '../journal/facts.ts'
import { recoverBeforeRefusal } from '../recovery/recover-host.ts'
import { type ClosedDeployment, closeDeployment, closeUntouched } from '../reports/close.ts'
import type { ReportSender } from '../reports/sender.ts'
import { createDeploymentRecord } from '../transaction/record.ts'
import { type DeploymentTools, type EndedDeployment, hostOf } from './deployment.ts'

export interface Refusal {
  error: DeployError
  facts: DeploymentFacts
  /** Undefined if the host must not be touched, or is not known. */
  projectRoot: string | undefined
  allowSharedRoot: boolean
  /** Undefined if the inputs name none, or if it cannot be read. */
  hostConfig: SourceFile | undefined
  /** Undefined if not known. */
  keepReports: number | undefined
  /** Undefined if the hub must not get a report, or if the inputs are not sufficient to reach the hub. */
  sender: ReportSender | undefined
}

/**
 * Ends a deployment that was refused before it began. If the project root exists and may be touched, recovers what a
 * dead run left and writes a local report. Reports to the hub if there is a connection (contract 4.3, rule 7). Creates
 * no project root.
 */
export async function refuseDeployment(refused: Refusal, tools: DeploymentTools): Promise<EndedDeployment> {
  const { error, facts, projectRoot, sender } = refused
  const record = createDeploymentRecord(
    facts,
    [{ state: 'pending', at: tools.now().toISOString() }],
    tools.secrets.know,
  )
  const { code, message } = error
  const end = buildEnd(tools.now(), { outcome: 'failed', error: { code, message, step: null } })
  const onKnown = (closed: ClosedDeployment): void => tools.observer.onEnded({ ...closed, error })
  if (projectRoot === undefined || !isDirectorySync(projectRoot)) {
    const { log, secrets, grace } = tools
    const hub = { sender, log, secrets, grace }
    return { ...(await closeUntouched(hub, { record, end }, onKnown)), plannedSteps: [], error }
  }
  const host = hostOf(tools, { ...refused, projectRoot })
  const known = await recoverBeforeRefusal(host, end)
  const closed =
    known instanceof UntouchableHostError
      ? await closeUntouched(host, { record, end: withReason(end, known) }, onKnown)
      : await closeDeployment(host, { record, end: known, address: sender?.address ?? null }, onKnown)
  return { ...closed, error }
}

function withReason(end: DeploymentEnd, { message }: DeployError): DeploymentEnd {
  return end.error === null
    ? end
    : { ...end, error: { ...end.error, message: `${asSentence(end.error.message)} Also: ${message}` } }
}

function isDirectorySync(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}
