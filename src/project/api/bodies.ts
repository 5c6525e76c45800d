import { z } from 'zod/mini'
import { versionSchema } from '../../core/identifiers.ts'
import { readReasonFields, reasonText } from '../../net/error-reason.ts'

const MAX_TEXT_CHARS = 8192
const textSchema = z
  .string()
  .check(z.maxLength(MAX_TEXT_CHARS, { error: `must be at most ${MAX_TEXT_CHARS} characters` }))

/**
 * The minimum length of a secret. A shorter one could be a word that the run itself uses, and masking it would let the
 * hub remove that word from the log.
 */
const MIN_SECRET_CHARS = 16
const VISIBLE_ASCII = /^[\x21-\x7e]+$/

/** True for a text that may be masked wherever it appears: one word that is long enough to be a secret. */
export function isSecretWord(text: string): boolean {
  return text.length >= MIN_SECRET_CHARS && VISIBLE_ASCII.test(text)
}

/** The answer of `POST /v1/auth` (contract 2.2). A token is visible ASCII, so that it fits into a header. */
export const authAnswerSchema = z.lazy(() =>
  z.object({
    access_token: textSchema.check(
      z.minLength(MIN_SECRET_CHARS, { error: `must have at least ${MIN_SECRET_CHARS} characters` }),
      z.regex(VISIBLE_ASCII, { error: 'must be one word of visible ASCII' }),
    ),
    /** In seconds. The contract does not define this field, so a hub may send any value. */
    expires_in: z.catch(z.optional(z.number()), undefined),
  }),
)

/** The answer of `GET .../versions/latest`; `version` is null if there is no published version. */
export const latestAnswerSchema = z.lazy(() =>
  z.object({
    version: z.pipe(
      z.pipe(
        z.nullish(z.string().check(z.trim())),
        z.transform(version => version || null),
      ),
      z.nullable(versionSchema),
    ),
  }),
)

/** The answer of `GET .../artifacts/{version}`. The caller checks the signature and the key. */
export const descriptorAnswerSchema = z.lazy(() =>
  z.object({
    download_url: textSchema.check(z.minLength(1, { error: 'must be a URL' })),
    signature: z.nullish(textSchema),
    signer_public_key: textSchema,
  }),
)

/** The answer of `POST /v1/deployments/authorize`. */
export const authorizeAnswerSchema = z.lazy(() => z.object({ dek: textSchema }))

/** The body of `POST /v1/deployments/report`. Times are ISO 8601, UTC. */
export interface ReportBody {
  project_id: string
  deployment_id: string
  status: 'success' | 'failed' | 'rolled_back'
  version: string
  started_at: string
  completed_at: string
  plugins: { id: string; version: string }[]
}

/**
 * The reason in a refusal's JSON body: `error` (contract 7), else `detail`, else `message`; undefined if there is none.
 */
export function parseErrorText(body: unknown): string | undefined {
  return reasonText(readReasonFields(body).find(reasonText))
}
