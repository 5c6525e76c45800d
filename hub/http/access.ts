import type { Context } from 'hono'
import { isAdminToken } from '../admin-token.ts'
import { HubError } from '../errors.ts'
import { type ApiKey, useKey } from '../keys.ts'
import type { ListingId } from '../marketplace/catalogue.ts'
import type { Store } from '../store.ts'

/** The key sent in `X-API-Key` (contract 5.1). Throws HubError 401 when it is missing, unknown or revoked. */
export function requireKey(c: Context, store: Store): ApiKey {
  const value = c.req.header('x-api-key')
  if (!value) throw unauthorized('This route needs an API key in the X-API-Key header.')
  const key = useKey(store, value)
  if (key === undefined) throw unauthorized('The API key is unknown or revoked.')
  return key
}

/** Throws HubError 403 when the key is bound to another plugin or service. */
export function requireBinding(key: ApiKey, { kind, slug }: ListingId): void {
  if (key.kind === null || (key.kind === kind && key.slug === slug)) return
  throw new HubError(403, `The API key ${key.prefix}... is bound to the ${key.kind} ${key.slug}.`)
}

/** Throws HubError 401 unless the admin token is sent as `Authorization: Bearer`, or as the password of `Basic`. */
export function requireAdmin(c: Context, store: Store): void {
  const token = sentToken(c.req.header('authorization') ?? '')
  if (token === undefined)
    throw unauthorized('This route needs the admin token in the Authorization header, as a Bearer token.')
  if (!isAdminToken(store, token)) throw unauthorized('The admin token is wrong.')
}

/** A browser can only ask for a name and a password, which it sends as `Basic base64(name:password)`. */
function sentToken(authorization: string): string | undefined {
  const [, scheme, value] = /^(Bearer|Basic) +(\S+)$/i.exec(authorization) ?? []
  if (value === undefined || scheme?.toLowerCase() === 'bearer') return value
  return /^[^:]*:(.+)$/.exec(Buffer.from(value, 'base64').toString())?.[1]
}

function unauthorized(message: string): HubError {
  return new HubError(401, message)
}
