import { z } from 'zod'
import { HubError } from '../../errors.ts'
import { isLoopbackHost } from '../../http/connections.ts'
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
/** The errors of a connection that was never established, or not trusted. */
const BEFORE_SENDING =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_\w+|E(?:HOST|NET)UNREACH|EADDR\w+|UND_ERR_CONNECT_TIMEOUT)$|CERT|TLS|SSL|SIGNED|UNABLE_TO|bad port/

const refusalSchema = z.object({ error: z.string() }).or(z.object({ detail: z.string() }))

const BUSY = 503
const MOST_ATTEMPTS = 11
const MOST_WAIT_SECONDS = 60

/**
 * Publishes a sealed file to a running hub, as a form. Sends the key and the DEK only over https or to this machine,
 * and follows no redirects. Waits for a busy hub at most ten times, each time for at most a minute. If the hub refuses,
 * throws HubError 400 with the hub's own words. Also throws HubError 400 for any other unexpected answer, for no
 * answer, and for a URL that is not safe. `wait` takes milliseconds.
 */
export async function sendPublication(
  access: HubAccess,
  sealed: SealedRelease,
  wait: (ms: number) => Promise<unknown>,
): Promise<Published> {
  const url = `${requireSafe(access.hubUrl)}/v1/projects/${encodeURIComponent(sealed.release.project_id)}/publish`
  const request = { method: 'POST', headers: { 'X-API-Key': access.devkey }, body: formOf(sealed) }
  for (let attempt = 1; ; attempt++) {
    const response = await fetch(url, { ...request, redirect: 'manual' }).catch(error => {
      throw noAnswer(url, error)
    })
    const answer: unknown = await response.json().catch(() => undefined)
    const { success, data } = answerSchema.safeParse(answer)
    if (response.ok && success) {
      const { version, size_bytes: size, content_sha256: sha256, revoked_at } = data
      return { version, size, sha256, revoked_at }
    }
    if (response.status !== BUSY || attempt === MOST_ATTEMPTS) throw refused(url, response, quoted(answer))
    await wait(waitSeconds(response) * 1000)
  }
}

function formOf({ bytes, release: { project_id, ...fields } }: SealedRelease): FormData {
  const form = new FormData()
  for (const [name, value] of Object.entries({ ...fields, project_name: project_id })) form.set(name, value)
  form.set('artifact', new Blob([new Uint8Array(bytes)]), 'artifact.sealed')
  return form
}

/** The seconds that the hub asks the client to wait, at most 60; also 60 if the hub names no number from 1 to 99. */
function waitSeconds({ headers }: Response): number {
  const asked = /^[1-9]\d?$/.exec(headers.get('retry-after') ?? '')?.[0]
  return Math.min(Number(asked ?? MOST_WAIT_SECONDS), MOST_WAIT_SECONDS)
}

function refused(url: string, { ok, status }: Response, reason: string): HubError {
  const answered = `${url} answered ${status}${reason}`
  if (status === BUSY || (!ok && status < 500)) return new HubError(400, `${answered}: nothing was published.`)
  return new HubError(
    400,
    `${answered}, so the version may or may not have been published: check --hub-url, and run the command again. A hub never publishes a version twice.`,
  )
}

/** `fetch` puts the reason into the cause of its error. */
function noAnswer(url: string, error: Error): HubError {
  const { code, message } = (error.cause ?? error) as NodeJS.ErrnoException
  const reason = code ?? message
  if (BEFORE_SENDING.test(reason))
    return new HubError(
      400,
      `${url} cannot be reached (${reason}): check --hub-url, that the hub is running, and, for https, that this machine trusts its certificate.`,
    )
  return new HubError(
    400,
    `The connection to ${url} broke (${reason}), so the version may or may not have been published: run the command again. A hub never publishes a version twice.`,
  )
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

/** Quotes the hub's words on one line of a terminal. */
function quoted(answer: unknown): string {
  const { data } = refusalSchema.safeParse(answer)
  if (data === undefined) return ''
  const text = 'error' in data ? data.error : data.detail
  return ` (${text.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').slice(0, 1000)})`
}
