import { z } from 'zod'
import { requireSafeUrl, type SendingTools, sendUpload } from '../../http/send-upload.ts'
import type { SealedRelease } from '../publish.ts'

/** A running hub, and a dev key that can publish there. */
export interface HubAccess {
  /** May include a path. */
  readonly hubUrl: string
  readonly devkey: string
}

export interface Published {
  readonly version: string
  readonly size: number
  readonly sha256: string
  /** Null unless the version was published before and is revoked now. */
  readonly revoked_at: string | null
}

const answerSchema = z.object({
  version: z.string(),
  size_bytes: z.number(),
  content_sha256: z.string(),
  revoked_at: z.string().nullable().default(null),
})

/**
 * Publishes a sealed file to a running hub, as a form. Sends the key and the DEK only over https or to this machine.
 * Throws as requireSafeUrl and sendUpload do.
 */
export async function sendPublication(
  { hubUrl, devkey }: HubAccess,
  sealed: SealedRelease,
  tools: SendingTools = {},
): Promise<Published> {
  const url = `${requireSafeUrl(hubUrl)}/v1/projects/${encodeURIComponent(sealed.release.project_id)}/publish`
  const form = new Response(formOf(sealed))
  const headers = { 'X-API-Key': devkey, 'Content-Type': form.headers.get('content-type') ?? '' }
  const sending = { url, headers, body: new Uint8Array(await form.arrayBuffer()) }
  const { answer } = await sendUpload(sending, answerSchema, tools)
  const { version, size_bytes: size, content_sha256: sha256, revoked_at } = answer
  return { version, size, sha256, revoked_at }
}

function formOf({ bytes, release: { project_id, ...fields } }: SealedRelease): FormData {
  const form = new FormData()
  for (const [name, value] of Object.entries({ ...fields, project_name: project_id })) form.set(name, value)
  form.set('artifact', new Blob([new Uint8Array(bytes)]), 'artifact.sealed')
  return form
}
