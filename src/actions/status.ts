import { hostname } from 'node:os'
import { type DeployError, DeploymentError, toDeployError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { type BoundedList, countInWords, fitList } from '../core/text.ts'
import { layoutOf, placePath } from '../install/host/layout.ts'
import {
  type How,
  type InspectedPart,
  type Inspection,
  type InspectionRequest,
  inspectHost,
  isDrifted,
  isPartDrifted,
} from '../install/status.ts'
import { readWorkspace } from '../runner/files.ts'
import {
  booleanSchema,
  type GivenInputs,
  InputReader,
  inputError,
  keepPathsSchema,
  projectRootSchema,
} from '../runner/inputs.ts'
import { type ReadingStepEnd, runReadingStep, type StepTools } from '../runner/step.ts'
import {
  buildFailedStatusSummary,
  buildStatusSummary,
  describeFailedStatus,
  describeStatus,
  describeUnrecorded,
  findingsOf,
} from '../runner/summaries/status.ts'

export interface StatusInputs extends GivenInputs {
  /** Undefined if one of its inputs is missing or malformed. */
  readonly request: InspectionRequest | undefined
  readonly failOnDrift: boolean
}

/** The limit for one output: no step can start with more than 128 KiB in one environment variable. */
const MAX_OUTPUT_CHARS = 100_000
const MAX_LOGGED_PARTS = 500

const UNKNOWN = { installed: '', drift: '', 'pending-recovery': '', snapshots: '', 'drift-details': '' }

/** The status action: reports what is installed on this host, and whether its files are unchanged. Changes nothing. */
export async function status(): Promise<void> {
  await runReadingStep(() => readStatusInputs(readWorkspace()), showStatus)
}

/** Reads every input of the status action and collects all problems. */
export function readStatusInputs(workspace: string): StatusInputs {
  const read = new InputReader('status', workspace)
  const root = read.required('project-root', projectRootSchema)
  const allowSharedRoot = read.withDefault('allow-shared-root', booleanSchema, false)
  const keepPaths = read.withDefault('keep-paths', keepPathsSchema, [])
  const failOnDrift = read.withDefault('fail-on-drift', booleanSchema, false)
  const isComplete = root !== undefined && allowSharedRoot !== undefined && keepPaths !== undefined
  return {
    request: isComplete ? { layout: layoutOf(root), sharedRoot: { isAllowed: allowSharedRoot }, keepPaths } : undefined,
    failOnDrift: failOnDrift ?? true,
    ...read.given(),
  }
}

async function showStatus({ request, failOnDrift, problems }: StatusInputs, tools: StepTools): Promise<ReadingStepEnd> {
  const host = { name: hostname(), root: request?.layout.root }
  try {
    if (problems.length > 0 || request === undefined) throw inputError(problems)
    const inspection = await inspectHost(request, tools)
    const error = failOnDrift ? failureOf(inspection) : undefined
    const lists = buildLists(inspection)
    const cut = [...cutIn(lists), ...omittedIn(inspection)]
    logStatus(inspection, tools.log)
    if (error === undefined) for (const finding of findingsOf(inspection)) tools.log.warning(finding)
    for (const sentence of [...describeUnrecorded(inspection), ...cut]) tools.log.notice(sentence)
    return {
      outputs: buildOutputs(inspection, lists),
      error,
      summary: buildStatusSummary(inspection, { host, error, cut }),
      sentence: describeStatus(inspection, host).sentence,
    }
  } catch (thrown) {
    const error = toDeployError(thrown)
    const summary = buildFailedStatusSummary(error, host)
    return { outputs: UNKNOWN, error, summary, sentence: describeFailedStatus(host).sentence }
  }
}

function logStatus({ parts, isKnown }: Inspection, log: Log): void {
  const version = ({ row }: InspectedPart): string => row.version ?? row.project_version ?? 'unknown'
  for (const part of parts.slice(0, MAX_LOGGED_PARTS))
    log.info(`${placePath(part)} ${version(part)}, installed ${part.row.installed_at ?? 'at an unknown time'}`)
  if (parts.length > MAX_LOGGED_PARTS) log.info(`and ${countInWords(parts.length - MAX_LOGGED_PARTS, 'more part')}`)
  if (!isKnown) log.warning('There is no .hub-deploy here, so no deployment is recorded: is project-root right?')
}

/** The error of a step with `fail-on-drift`; undefined if every part was compared and is still as it was installed. */
function failureOf(inspection: Inspection): DeployError | undefined {
  const { activity } = inspection
  if (isDrifted(inspection) === false) return undefined
  const code = activity.kind === 'busy' ? 'locked' : 'drift_found'
  return new DeploymentError(code, findingsOf(inspection).join(' '))
}

type Lists = Readonly<Record<'installed' | 'snapshots' | 'drift-details', BoundedList>>

function buildLists({ parts, snapshots }: Inspection): Lists {
  return {
    installed: fitList(parts.map(installedEntry), MAX_OUTPUT_CHARS),
    snapshots: fitList(snapshots.map(snapshotEntry), MAX_OUTPUT_CHARS),
    'drift-details': fitList(driftEntries(parts), MAX_OUTPUT_CHARS),
  }
}

function cutIn(lists: Lists): string[] {
  return Object.entries(lists).flatMap(([name, { omitted }]) =>
    omitted === 0 ? [] : [`The output ${name} is truncated: it has no room for ${countInWords(omitted, 'more item')}.`],
  )
}

/** Counts the paths that drift-details has no room for, in one sentence; empty if there is room for all. */
function omittedIn({ parts }: Inspection): string[] {
  const omitted = driftEntries(parts).reduce((sum, entry) => sum + (entry.omitted ?? 0), 0)
  return omitted === 0
    ? []
    : [`The output drift-details is truncated: it has no room for ${countInWords(omitted, 'more path')}.`]
}

function buildOutputs(inspection: Inspection, lists: Lists): Record<string, string> {
  const drifted = isDrifted(inspection)
  return {
    ...Object.fromEntries(Object.entries(lists).map(([name, { json }]) => [name, json])),
    drift: drifted === undefined ? '' : String(drifted),
    'pending-recovery': String(inspection.activity.kind === 'interrupted'),
  }
}

function installedEntry({ shelf, id, row }: InspectedPart) {
  const version = row.version ?? row.project_version
  const entry = {
    shelf,
    id,
    ...directoryOf(row),
    version,
    sha256: row.artifact_sha256,
    when: row.installed_at,
    run: row.run_url,
  }
  return row.modified ? { ...entry, sha256: null, modified: true } : entry
}

/** Names the directory only if it is not the usual one. */
function directoryOf({ directory }: InspectedPart['row']) {
  return directory === undefined ? {} : { directory }
}

function snapshotEntry({ shelf, id, row, path }: Inspection['snapshots'][number]) {
  const version = row.version ?? row.project_version
  return { shelf, id, version, when: row.installed_at, modified: row.modified === true, path }
}

/** An entry of the output drift-details. */
type DriftDetails = Readonly<Record<string, unknown>> & { readonly omitted?: number }

/** Lists every part that differs, with as many paths as fit into the output. */
function driftEntries(parts: readonly InspectedPart[]): DriftDetails[] {
  const room = { chars: MAX_OUTPUT_CHARS / 2 }
  return parts.filter(isPartDrifted).map(part => driftEntry(part, room))
}

const LIST_OF = {
  added: 'added',
  removed: 'removed',
  changed: 'changed',
  replaced: 'changed',
  mode: 'mode',
  writable: 'mode',
} as const satisfies Record<How, string>

function driftEntry({ shelf, id, row, drift }: InspectedPart, room: { chars: number }): DriftDetails {
  const listed = { added: [] as string[], removed: [] as string[], changed: [] as string[], mode: [] as string[] }
  const replaced: string[] = []
  const named = { shelf, id, ...directoryOf(row), version: row.version ?? row.project_version }
  const entry = { ...named, ...listed, ...(row.modified ? { modified: true } : {}) }
  if (drift === undefined) return entry
  if (drift.kind === 'no directory') return { ...entry, instead: drift.instead }
  if (drift.kind !== 'differs') return { ...entry, compared: false, reason: drift.why }
  let omitted = drift.count - drift.paths.length
  for (const { path, how } of drift.paths) {
    room.chars -= JSON.stringify(path).length + 1
    if (room.chars < 0) omitted += 1
    else {
      listed[LIST_OF[how]].push(path)
      if (how === 'replaced') replaced.push(path)
    }
  }
  return { ...entry, ...(replaced.length > 0 ? { replaced } : {}), ...(omitted > 0 ? { omitted } : {}) }
}
