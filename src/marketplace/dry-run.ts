import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { toDeployError } from '../core/errors.ts'
import { isSystemError, toHostError } from '../install/files/system-errors.ts'
import { lstatIfPresentSync, pathExistsSync } from '../install/files/tree-walk.ts'
import { installPath } from '../install/host/layout.ts'
import { buildTreeRecord, compareTree } from '../install/host/tree-record.ts'
import { buildLocalReport, redactReport } from '../install/reports/local-report.ts'
import { type ReadyArtifactPlan, readyArtifactPlan } from './plan.ts'
import { type Prepared, prepareArtifact } from './prepare.ts'
import { notePrevious } from './previous.ts'
import type { DeployResult } from './request.ts'
import type { Run } from './run.ts'

/**
 * Everything up to the plan, then what would be done: the ordered steps and how the files differ from what is installed.
 * Writes nothing below the project root and reports nothing.
 */
export async function dryRun(run: Run): Promise<DeployResult> {
  let ready: ReadyArtifactPlan | undefined
  try {
    ready = readyArtifactPlan(run.request)
    await run.record.update({ id: ready.id })
    await rehearse(run, ready)
    return result(run, ready, undefined)
  } catch (error) {
    if (run.machine.current !== 'pending') await run.enter('failed')
    return result(run, ready, causeOf(run, error))
  }
}

function causeOf({ tools, layout }: Run, thrown: unknown): unknown {
  if (tools.signal.aborted) return tools.signal.reason
  return isSystemError(thrown) ? toHostError(thrown, `rehearsing a deployment below ${layout.root}`) : thrown
}

async function rehearse(run: Run, ready: ReadyArtifactPlan): Promise<void> {
  const folder = await makeFolder(run.tools.temporaryFolder)
  try {
    const previous = await notePrevious(run, ready.id)
    if (pathExistsSync(run.layout.journal))
      run.tools.log.notice('An interrupted deployment waits to be recovered: a real run would do that first.')
    const prepared = await prepareArtifact(run, ready, folder, previous)
    await tellDifferences(run, prepared)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function makeFolder(parent: string): Promise<string> {
  try {
    return await mkdtemp(join(parent, 'hub-deploy-dry-run-'))
  } catch (error) {
    throw toHostError(error, `making a folder in ${parent}`)
  }
}

async function tellDifferences(run: Run, prepared: Prepared): Promise<void> {
  const { log } = run.tools
  const place = installPath(run.layout, { shelf: run.shelf, id: prepared.ready.id })
  const record = buildTreeRecord(prepared.tree, run.request.keepPaths)
  const { keepPaths } = run.request
  const { missing, extra, changed } = await compareTree({ root: place, keepPaths }, record, run.tools.signal)
  const newSizes = new Map(record.files.map(file => [file.path, file.size]))
  const sizeOnHost = (path: string): string => bytes(lstatIfPresentSync(join(place, path))?.size)
  log.group(`Dry run: ${run.record.facts.previous_version ?? 'nothing'} → ${prepared.version}`)
  for (const [index, step] of prepared.ready.steps.entries()) log.info(`step ${index + 1}: ${step.id} (${step.action})`)
  for (const path of missing) log.info(`added    ${path} (${bytes(newSizes.get(path))})`)
  for (const path of extra) log.info(`removed  ${path} (${sizeOnHost(path)})`)
  for (const path of changed) log.info(`changed  ${path} (${sizeOnHost(path)} → ${bytes(newSizes.get(path))})`)
  log.info(`${missing.length} added, ${extra.length} removed, ${changed.length} changed. Nothing was done.`)
}

function bytes(size: number | undefined): string {
  return size === undefined ? 'symlink' : `${size} bytes`
}

function result(run: Run, ready: ReadyArtifactPlan | undefined, thrown: unknown): DeployResult {
  const error = thrown === undefined ? undefined : toDeployError(thrown)
  const end = {
    outcome: error === undefined ? ('success' as const) : ('failed' as const),
    changed: false,
    error: error === undefined ? null : { code: error.code, message: error.message, step: null },
    rollback: null,
    completed_at: run.tools.now().toISOString(),
  }
  const report = buildLocalReport(run.record, end, { accepted: false, attempts: 0, error: 'a dry run reports nothing' })
  return {
    report: redactReport(report, run.tools.redact),
    reportPath: undefined,
    installPath: ready && installPath(run.layout, { shelf: run.shelf, id: ready.id }),
    error,
    plannedSteps: ready?.steps.map(({ id, action }) => ({ id, action })) ?? [],
  }
}
