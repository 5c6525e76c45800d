import { z } from 'zod'

/** Where the run came from, from `GITHUB_*`; nulls outside a workflow. */
export const runFactsSchema = z.lazy(() =>
  z.object({
    workflow: z.string().nullable(),
    run_id: z.string().nullable(),
    run_attempt: z.string().nullable(),
    job: z.string().nullable(),
    actor: z.string().nullable(),
    url: z.string().nullable(),
  }),
)
export type RunFacts = z.infer<typeof runFactsSchema>

/** What is known of a deployment; the nulls are filled as it goes. As written to the journal and the local report. */
export const deploymentFactsSchema = z.lazy(() =>
  z.object({
    deployment_id: z.uuid(),
    contract: z.enum(['marketplace', 'project']),
    /** Null for a project, which may bring both. */
    kind: z.string().nullable(),
    /** A project's id stands here as well. */
    slug: z.string().nullable(),
    id: z.string().nullable(),
    requested_version: z.string().nullable(),
    version: z.string().nullable(),
    version_source: z.string().nullable(),
    previous_version: z.string().nullable(),
    artifact_sha256: z.string().nullable(),
    artifact_size: z.number().nullable(),
    repo: z.string().nullable(),
    /** The plugins that a project installs, once they are known. */
    plugins: z.array(z.object({ id: z.string(), version: z.string() })).exactOptional(),
    /** The pinned key that the signature of a project held for: base64 of the 32 bytes. */
    signer_public_key: z.string().exactOptional(),
    host_id: z.string(),
    started_at: z.string(),
    run: runFactsSchema,
  }),
)
export type DeploymentFacts = z.infer<typeof deploymentFactsSchema>

export const stateEntrySchema = z.lazy(() => z.object({ state: z.string(), at: z.string() }))

export const stepEntrySchema = z.lazy(() =>
  z.object({
    id: z.string(),
    action: z.string(),
    status: z.enum(['done', 'unchanged', 'skipped', 'warned', 'failed', 'not_run']),
    duration_ms: z.number(),
    error: z.string().nullable(),
  }),
)
export type StepEntry = z.infer<typeof stepEntrySchema>
