import { z } from 'zod/mini'

/** The detail record; everything but the latest version is ignored (docs/contracts.md, "Detail route"). */
export const detailSchema = z.object({ latest_version: z.nullish(z.string()) })

/** The body of `POST /deployments/report`; times are ISO 8601, UTC. */
export interface ReportBody {
  kind: string
  slug: string
  version: string
  status: 'success' | 'failed' | 'rolled_back'
  started_at: string
  completed_at: string
  host_id: string
  repo: string | null
  error_message: string | null
}

const errorSchema = z.lazy(() =>
  z.object({
    error: z.catch(z.optional(z.string()), undefined),
    detail: z.catch(z.optional(z.string()), undefined),
    message: z.catch(z.optional(z.string()), undefined),
  }),
)

/** The reason in a marketplace error: `error`, else `detail`, else `message` of its JSON body. */
export function parseErrorText(body: unknown): string | undefined {
  const parsed = errorSchema.safeParse(body)
  return parsed.success ? (parsed.data.error ?? parsed.data.detail ?? parsed.data.message) : undefined
}
