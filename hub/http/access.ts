import type { Context } from 'hono'
import { isAdminToken } from '../admin-token.ts'
import { HubError } from '../errors.ts'
import { type ApiKey, useKey } from '../keys.ts'
import type { ListingId } from '../marketplace/catalogue.ts'
import type { Store } from '../store.ts'

/** Returns the key sent in `X-API-Key` (contract 5.1). Throws HubError 401 if it is missing, unknown or revoked. */
export function requireKey(c: Context, store: Store): ApiKey {
  const value = c.req.header('x-api-key')
  if (!value) throw unauthorized('This route needs an API key in the X-API-Key header.')
  const key = useKey(store, value)
  if (key === undefined) throw unauthorized('The API key is unknown or revoked.')
  return key
}

/** Throws HubError 403 if the key is bound to another plugin or service. */
export function requireBinding(key: ApiKey, { kind, slug }: ListingId): void {
  if (key.kind === null || (key.kind === kind && key.slug === slug)) return
  throw new HubError(403, `The API key ${key.prefix}... is bound to the ${key.kind} ${key.slug}.`)
}

/** Throws HubError 401 unless the request has the admin token as `Authorization: Bearer`. */
export function requireAdmin(c: Context, store: Store): void {
  const missing = 'This route needs the admin token in the Authorization header, as a Bearer token.'
  requireToken(store, c.req.header('authorization'), missing)
}

/**
 * Works like requireAdmin, but also accepts the token as a password, so that a browser can ask its user for the token.
 * No route that changes anything may use this function: a browser that knows the password also sends it with requests
 * that another site triggers.
 */
export function requireAdminToLook(c: Context, store: Store): void {
  const sent = c.req.header('authorization')
  const missing = 'This page needs the admin token: enter it as the password, with any user name.'
  requireToken(store, asBearer(sent) ?? sent, missing)
}

function requireToken(store: Store, authorization: string | undefined, missing: string): void {
  const [, token] = /^Bearer +(\S+)$/i.exec(authorization ?? '') ?? []
  if (token === undefined) throw unauthorized(missing)
  if (!isAdminToken(store, token)) throw unauthorized('The admin token is wrong.')
}

/** A browser can only ask for a name and a password, which it sends as `Basic base64(name:password)`. */
function asBearer(authorization = ''): string | undefined {
  const [, value = ''] = /^Basic +(\S+)$/i.exec(authorization) ?? []
  const [, password] = /^[^:]*:(.+)$/.exec(Buffer.from(value, 'base64').toString()) ?? []
  return password === undefined ? undefined : `Bearer ${password}`
}

function unauthorized(message: string): HubError {
  return new HubError(401, message)
}
