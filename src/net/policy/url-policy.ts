import { ConfigError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'

export interface UrlPolicy {
  /** Accepts plain http for any host, not only for loopback addresses. */
  allowHttp: boolean
}

/**
 * Parses a URL that may be requested: https, or plain http for a loopback address (with `allowHttp`, for any host). It
 * must not contain userinfo. Throws ConfigError `invalid_input` if the text is not a URL, and `insecure_url` if the
 * policy refuses the URL.
 */
export function parseRequestUrl(text: string, policy: UrlPolicy): URL {
  if (!URL.canParse(text)) {
    throw new ConfigError(
      'invalid_input',
      `Expected an absolute https URL, found "${withoutSecrets(text)}": check the input.`,
    )
  }
  const url = new URL(text)
  refuseInsecureUrl(url, policy)
  return url
}

/** Throws ConfigError `insecure_url` unless the URL may be requested at all; see `parseRequestUrl`. */
export function refuseInsecureUrl(url: URL, policy: UrlPolicy): void {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw insecure(`Expected an https URL, found the scheme "${url.protocol.slice(0, -1)}": check the URL.`)
  }
  if (url.username !== '' || url.password !== '') {
    throw insecure(`The URL of ${url.host} contains a user name or password: pass credentials in their own inputs.`)
  }
  if (url.protocol === 'http:' && !policy.allowHttp && !isLoopback(url.hostname)) {
    throw insecure(
      `${url.origin} is plain http, which anyone on the network path can read and change: use https, or set allow-http if you accept that.`,
    )
  }
}

/**
 * Throws ConfigError `insecure_url` for a redirect from https to http, even with `allowHttp`, and for any redirect to a
 * URL that no policy accepts.
 */
export function refuseInsecureHop(from: URL, to: URL): void {
  const fault = faultOf(to)
  if (fault !== undefined) {
    throw insecure(
      `Expected ${from.origin} to redirect to an https URL, found one with ${fault}: the redirect was not followed. Report this to the hub's operator.`,
    )
  }
  if (from.protocol === 'https:' && to.protocol !== 'https:') {
    throw insecure(
      `${from.origin} redirects from https to ${to.origin}, which is not https: the redirect was not followed. Report this to the hub's operator.`,
    )
  }
}

/** Names the part of the URL that every policy refuses, as a noun phrase; undefined if there is none. */
export function faultOf({ protocol, username, password }: URL): string | undefined {
  if (protocol !== 'https:' && protocol !== 'http:')
    return `the scheme "${cleanForeignText(protocol.slice(0, -1), 60)}"`
  return username === '' && password === '' ? undefined : 'a user name or password'
}

/**
 * True if plain http to the host cannot leave the machine: 127.0.0.0/8, ::1 and `localhost`, but no name that merely
 * resembles them.
 */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || LOOPBACK_IPV4.test(hostname)
}

const LOOPBACK_IPV4 = /^127(?:\.\d{1,3}){3}$/

function withoutSecrets(text: string): string {
  return cleanForeignText(text.replace(/[?#].*$/s, '').replace(/\/\/[^/]*@/, '//'), 100)
}

function insecure(message: string): ConfigError {
  return new ConfigError('insecure_url', message)
}
