import { z } from 'zod'
import { HubError } from '../../errors.ts'
import { isLoopbackHost } from '../../http/loopback.ts'
import type { SealedRelease } from '../publish.ts'

/** A running hub, and a dev key that can publish there. */
export interface HubAccess {
  /** May include a path. */
  readonly hubUrl: string
  readonly devkey: string
}

const answerSchema = z.object({ version: z.string(), size_bytes: z.number(), content_sha256: z.string() })
const refusalSchema = z.object({ error: z.string() }).or(z.object({ detail: z.string() }))

/**
 * Publishes a sealed file on a running hub, as a form. Sends key and DEK over https or to this machine only, and follows
 * no redirect. Throws HubError 400 with the hub's own words when it refuses, and for any other answer.
 */
export async function sendPublication({ hubUrl, devkey }: HubAccess, { bytes, release }: SealedRelease) {
  const { project_id, ...fields } = release
  const form = new FormData()
  for (const [name, value] of Object.entries({ ...fields, project_name: project_id })) form.set(name, value)
  form.set('artifact', new Blob([new Uint8Array(bytes)]), 'artifact.sealed')
  const url = `${requireSafe(hubUrl)}/v1/projects/${encodeURIComponent(project_id)}/publish`
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'X-API-Key': devkey },
    body: form,
    redirect: 'manual',
  })
  const answer: unknown = await response.json().catch(() => undefined)
  const { success, data } = answerSchema.safeParse(answer)
  if (response.ok && success) return { version: data.version, size: data.size_bytes, sha256: data.content_sha256 }
  throw new HubError(400, `${url} answered ${response.status}${quoted(answer)}: nothing was published.`)
}

function requireSafe(hubUrl: string): string {
  const url = URL.parse(hubUrl)
  const isSafe = url?.protocol === 'https:' || (url?.protocol === 'http:' && isLoopbackHost(bare(url.hostname)))
  if (isSafe) return hubUrl.replace(/\/+$/, '')
  throw new HubError(400, `The option --hub-url must be an https URL, or http on this machine, not ${hubUrl}.`)
}

function bare(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '')
}

/** On one line of a terminal, whatever the other hub says. */
function quoted(answer: unknown): string {
  const { data } = refusalSchema.safeParse(answer)
  if (data === undefined) return ''
  const text = 'error' in data ? data.error : data.detail
  return ` (${text.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').slice(0, 1000)})`
}
