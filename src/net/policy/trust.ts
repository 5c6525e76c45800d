import { X509Certificate } from 'node:crypto'
import { createSecureContext, getCACertificates, type SecureContext } from 'node:tls'
import { ConfigError } from '../../core/errors.ts'

/** `rejectUnauthorized` is set explicitly so that NODE_TLS_REJECT_UNAUTHORIZED=0 in the environment changes nothing. */
export interface Trust {
  rejectUnauthorized: true
  secureContext?: SecureContext
}

/**
 * Reads the authorities that TLS trusts: Node's defaults, and those in `ca` (PEM). Throws ConfigError `invalid_input`
 * if `ca` contains no certificate or a damaged one.
 */
export function readTrust(ca: string | undefined): Trust {
  if (ca === undefined) return { rejectUnauthorized: true }
  const fault = faultOfAuthorities(ca)
  if (fault !== undefined) throw new ConfigError('invalid_input', `ca-file ${fault}: check the file.`)
  return {
    rejectUnauthorized: true,
    secureContext: createSecureContext({ ca: allAuthorities(ca) }),
  }
}

/**
 * Returns what is wrong with a file of authorities, as the predicate of a sentence; undefined if nothing is. A damaged
 * certificate is a fault, because otherwise a server of that authority would be refused without a hint at the file.
 */
export function faultOfAuthorities(ca: string): string | undefined {
  const certificates = certificatesIn(ca)
  if (certificates.length === 0) return 'contains no certificate in PEM form (-----BEGIN CERTIFICATE-----)'
  const damaged = certificates.findIndex(pem => !isCertificate(pem))
  if (damaged === -1) return undefined
  return `contains a damaged certificate (number ${damaged + 1} of ${certificates.length}, on line ${lineOf(ca, damaged)})`
}

/**
 * Returns Node's default authorities and those in `ca`. Each is a separate text, because TLS ignores the rest of a text
 * after a block that it cannot read.
 */
export function allAuthorities(ca: string): string[] {
  return [...getCACertificates('default'), ...certificatesIn(ca)]
}

function certificatesIn(ca: string): string[] {
  const starts = startsIn(ca)
  return starts.map((start, i) => ca.slice(start, starts[i + 1]).replace(AFTER_END, '$1\n'))
}

/** A certificate begins on a line of its own, or directly after the end of another block. */
const BEGIN = /(?<=^\uFEFF?|-----)-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----/gm
const AFTER_END = /(-----END (?:X509 |TRUSTED )?CERTIFICATE-----).*$/s

function startsIn(ca: string): number[] {
  return [...ca.matchAll(BEGIN)].map(({ index }) => index)
}

function lineOf(ca: string, nth: number): number {
  return ca.slice(0, startsIn(ca)[nth]).split('\n').length
}

function isCertificate(pem: string): boolean {
  try {
    new X509Certificate(pem)
    return true
  } catch {
    return false
  }
}
