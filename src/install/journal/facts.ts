import { z } from 'zod/mini'
import { ERROR_CODES } from '../../core/errors.ts'
import {
  idSchema,
  kindSchema,
  pluginsDirectorySchema,
  projectIdSchema,
  sha256Schema,
  slugSchema,
} from '../../core/identifiers.ts'
import { countInWords } from '../../core/text.ts'
import { placePath, usualDirectory } from '../host/layout.ts'
import { timeSchema } from '../host/rows.ts'

/** The workflow run that deploys, from `GITHUB_*`; its fields are null outside a workflow. */
const workflowRunSchema = z.lazy(() =>
  z.object({
    workflow: z.nullable(z.string()),
    run_id: z.nullable(z.string()),
    run_attempt: z.nullable(z.string()),
    job: z.nullable(z.string()),
    actor: z.nullable(z.string()),
    url: z.nullable(z.string()),
  }),
)
export type WorkflowRun = z.infer<typeof workflowRunSchema>

/**
 * The differences between an installed part and the version that was installed; paths are relative to the part's
 * directory.
 */
const driftEntrySchema = z.lazy(() =>
  z.object({
    shelf: z.enum(['plugins', 'extensions']),
    id: idSchema,
    /** The directory of plugins that contained the part; absent for `plugins` and for an extension. */
    directory: z.exactOptional(pluginsDirectorySchema),
    version: z.nullable(z.string()),
    added: z.array(z.string()),
    removed: z.array(z.string()),
    changed: z.array(z.string()),
    /** The state of the place if it contained no directory; in that case, no path is listed. */
    instead: z.exactOptional(z.enum(['nothing', 'symlink', 'file', 'other'])),
    /** After a successful deployment: the path of the snapshot with the modified tree, relative to the project root. */
    snapshot: z.exactOptional(z.string()),
    /** False if the part could not be compared, for example because it has no record; absent otherwise. */
    compared: z.exactOptional(z.literal(false)),
    /** The number of further paths; absent if all are listed. */
    omitted: z.exactOptional(z.int().check(z.positive())),
    /** More files were added than `added` and `omitted` count; absent otherwise. */
    uncounted: z.exactOptional(z.literal(true)),
  }),
)
export type DriftEntry = z.infer<typeof driftEntrySchema>

/**
 * The facts of a deployment, as the journal and the local report contain them; an unknown fact is null or absent.
 * Facts marked "only in the journal" are for the log and the summary, and are not in the local report.
 */
export const deploymentFactsSchema = z.lazy(() =>
  z.object({
    deployment_id: z.uuid(),
    contract: z.enum(['marketplace', 'project']),
    /** Null for a project, which may contain both kinds. */
    kind: z.nullable(kindSchema),
    /** For a project, its id. */
    slug: z.nullable(z.union([slugSchema, projectIdSchema])),
    id: z.nullable(idSchema),
    /**
     * The directory of plugins that contains the part; absent for `plugins`, a service, a project, and while it is not
     * known.
     */
    directory: z.exactOptional(pluginsDirectorySchema),
    requested_version: z.nullable(z.string()),
    version: z.nullable(z.string()),
    version_source: z.nullable(z.string()),
    previous_version: z.nullable(z.string()),
    artifact_sha256: z.nullable(sha256Schema),
    artifact_size: z.nullable(z.number()),
    repo: z.nullable(z.string()),
    /**
     * Only for a rollback that an operator requested: the version that the rollback replaces; null until that version
     * is known.
     */
    rollback_of: z.exactOptional(z.nullable(z.string())),
    /** Only for a removal that an operator requested; absent otherwise. */
    removed: z.exactOptional(z.literal(true)),
    /** Only for a requested rollback: the restored tree had been changed on the host, so no artifact matches it. */
    modified: z.exactOptional(z.literal(true)),
    /** The plugins that a project installs, once they are known. */
    plugins: z.exactOptional(z.array(z.object({ id: z.string(), version: z.string() }))),
    /** The sources of the parts that a project only names, with the name of each part: `plugins/pay`, for example. */
    sources: z.exactOptional(z.array(z.object({ part: z.string(), from: z.string(), id: z.string() }))),
    /** The pinned key that signed a project: base64 of the 32 bytes. */
    signer_public_key: z.exactOptional(z.string()),
    /** The parts whose files, before the deployment, differed from what was installed; absent if that is not known. */
    drift: z.exactOptional(z.array(driftEntrySchema)),
    /** The artifact digest of the version that was installed in the place, if it was recorded. Only in the journal. */
    previous_sha256: z.exactOptional(sha256Schema),
    /** The artifact's signature is valid; absent otherwise. Only in the journal. */
    signature_valid: z.exactOptional(z.literal(true)),
    /** The place contains files that this action did not install; absent otherwise. Only in the journal. */
    unrecorded: z.exactOptional(z.literal(true)),
    /** How long this run waited in the state `pending` for another run to leave the host, and for which run. */
    waited: z.exactOptional(z.object({ duration_ms: z.number(), for: z.string() })),
    host_id: z.string(),
    started_at: timeSchema,
    run: workflowRunSchema,
  }),
)
export type DeploymentFacts = z.infer<typeof deploymentFactsSchema>

/**
 * The state table that a deployment follows: the table of its contract, or of a rollback or removal that an operator
 * requested.
 */
export type FlowName = DeploymentFacts['contract'] | 'rollback'

export function flowOf({ contract, rollback_of: replaced, removed }: DeploymentFacts): FlowName {
  return replaced === undefined && !removed ? contract : 'rollback'
}

export const stateEntrySchema = z.strictObject({ state: z.string().check(z.regex(/^[a-z_]{1,40}$/)), at: timeSchema })

export const stepEntrySchema = z.strictObject({
  id: z.string(),
  action: z.string(),
  status: z.enum(['done', 'unchanged', 'skipped', 'warned', 'failed', 'not_run']),
  duration_ms: z.number(),
  error: z.nullable(z.string()),
  /** The result in a few words. Only in the journal. */
  did: z.exactOptional(z.string()),
  /** Only for a health check: the ids of the parts whose service or check it examined. Only in the journal. */
  checked: z.exactOptional(z.array(z.string())),
})
export type StepEntry = z.infer<typeof stepEntrySchema>

const rollbackSchema = z.lazy(() =>
  z.object({
    /** Whether every change was undone. */
    restored: z.boolean(),
    /** The problems that remain, one sentence each. */
    problems: z.array(z.string()),
    /** Whether the restored trees match their records; null if that is not known. */
    verified: z.nullable(z.boolean()),
    /**
     * Whether the old version is healthy again; null if it was not checked, for example because it was not running
     * before.
     */
    healthy: z.nullable(z.boolean()),
    /**
     * Whether the deployment stopped or restarted a service that was running; absent if it acted on none. If false, the
     * processes from before the deployment never stopped.
     */
    stopped: z.exactOptional(z.boolean()),
  }),
)
export type RollbackFacts = z.infer<typeof rollbackSchema>

/** The end of a deployment, as the journal and the local report contain it. */
export const deploymentEndSchema = z.lazy(() =>
  z.object({
    outcome: z.enum(['success', 'failed', 'rolled_back', 'interrupted', 'inconsistent']),
    changed: z.boolean(),
    completed_at: timeSchema,
    error: z.nullable(z.object({ code: z.enum(ERROR_CODES), message: z.string(), step: z.nullable(z.string()) })),
    rollback: z.nullable(rollbackSchema),
  }),
)
export type DeploymentEnd = z.infer<typeof deploymentEndSchema>

/** Builds an end at the given time, without a change, an error or a rollback unless `known` contains one. */
export function buildEnd(at: Date, known: Pick<DeploymentEnd, 'outcome'> & Partial<DeploymentEnd>): DeploymentEnd {
  return { changed: false, error: null, rollback: null, completed_at: at.toISOString(), ...known }
}

const MAX_NAMES = 20
/** Names the state of a place that contains no directory. */
export const INSTEAD_WORDS: Record<NonNullable<DriftEntry['instead']>, string> = {
  nothing: 'missing',
  symlink: 'a symlink instead of a directory',
  file: 'a file instead of a directory',
  other: 'not a directory',
}

/** Returns the install path of an entry's part, relative to the project root. */
export function pathOfEntry({ shelf, id, directory = usualDirectory(shelf) }: DriftEntry): string {
  return placePath({ shelf, id, directory })
}

/**
 * Lists up to 20 of the files that differ, each with its part and its difference. `more` counts the rest in words, and
 * is empty if all are listed. `directories` are the top-level directories, such as a virtual environment, that are
 * listed in place of more than 20 added files.
 */
export function listDrift(entries: readonly DriftEntry[]): { names: string[]; more: string; directories: string[] } {
  const directories: string[] = []
  const all = entries.flatMap(entry => {
    const inWords = (how: 'changed' | 'removed' | 'added', paths = entry[how]): string[] =>
      paths.map(path => `${pathOfEntry(entry)}/${path} (${how})`)
    if (entry.instead !== undefined) return [`${pathOfEntry(entry)} (${INSTEAD_WORDS[entry.instead]})`]
    const added = [...Map.groupBy(entry.added, path => path.split('/')[0] ?? '')].flatMap(([top, paths]) => {
      if (paths.length <= MAX_NAMES) return inWords('added', paths)
      directories.push(`${pathOfEntry(entry)}/${top}`)
      return [`${pathOfEntry(entry)}/${top} (${countInWords(paths.length, 'file')} added)`]
    })
    return [...inWords('changed'), ...inWords('removed'), ...added]
  })
  const omitted = entries.reduce((sum, entry) => sum + (entry.omitted ?? 0), 0)
  const names = all.slice(0, MAX_NAMES)
  const count = all.length - names.length + omitted
  const least = entries.some(({ uncounted }) => uncounted) ? 'at least ' : ''
  return { names, more: count > 0 ? ` and ${least}${countInWords(count)} more` : '', directories }
}

type NamedRun = Pick<DeploymentFacts, 'slug' | 'id' | 'version' | 'rollback_of' | 'removed'>

/**
 * Names the run that a journal or report is about, without an article: `deployment of greeter 2.0.0`, or `rollback of
 * greeter to 1.0.0`. Leaves out what is not known.
 */
export function nameRun({
  slug = null,
  id = null,
  version = null,
  rollback_of: replaced,
  removed,
}: Partial<NamedRun>): string {
  const kind = removed ? 'removal' : replaced === undefined ? 'deployment' : 'rollback'
  const name = slug ?? id
  if (name === null) return kind
  const to = replaced === undefined ? '' : 'to '
  return version === null ? `${kind} of ${name}` : `${kind} of ${name} ${to}${version}`
}
