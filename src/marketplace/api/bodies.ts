import { z } from 'zod/mini'
import { readReasonFields, reasonText } from '../../net/error-reason.ts'

/** The detail record. Everything but the latest version is ignored (docs/contracts.md, "Detail route"). */
export const detailSchema = z.object({ latest_version: z.nullish(z.string()) })

/** The body of `POST /deployments/report`. Times are ISO 8601, UTC. */
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

/**
 * Returns the reason in the JSON body of a marketplace error: `error`, else `detail`, else `message`. A field with text
 * takes precedence over a field with any other value.
 */
export function parseErrorText(body: unknown): string | undefined {
  const fields = readReasonFields(body)
  return reasonText(fields.find(field => typeof field === 'string' && field !== '') ?? fields.find(reasonText))
}
