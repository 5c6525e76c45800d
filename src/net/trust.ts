import { X509Certificate } from 'node:crypto'
import type { Agent } from 'node:http'
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls'
import { ConfigError } from '../core/errors.ts'

/** `rejectUnauthorized` is written out so that NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment changes nothing. */
export interface Trust {
  rejectUnauthorized: true
  secureContext?: SecureContext
}

/**
 * Whom TLS believes: the authorities that Node trusts by default, and those in `ca` (PEM).
 * Throws ConfigError `invalid_input` when `ca` holds no certificate.
 */
export function readTrust(ca: string | undefined): Trust {
  if (ca === undefined) return { rejectUnauthorized: true }
  try {
    new X509Certificate(ca)
    return {
      rejectUnauthorized: true,
      secureContext: createSecureContext({ ca: [...getCACertificates('default'), ca] }),
    }
  } catch (cause) {
    throw new ConfigError(
      'invalid_input',
      'ca-file must hold certificates in PEM form (-----BEGIN CERTIFICATE-----), and it does not: check the file.',
      { cause },
    )
  }
}

/**
 * Makes the agent verify every certificate, that of an https proxy included, and makes `signal` end a stalled talk with the proxy.
 * Throws TypeError when the agent has no options to put that into, rather than connect without it.
 */
export function enforceTrust(
  agent: Agent & { options?: { proxy?: object } },
  trust: Trust,
  signal: AbortSignal,
): Agent {
  if (agent.options === undefined) throw new TypeError('Expected an HTTP agent with options, found one without.')
  Object.assign(agent.options, trust)
  if (agent.options.proxy !== undefined) Object.assign(agent.options.proxy, trust, { signal })
  return agent
}
