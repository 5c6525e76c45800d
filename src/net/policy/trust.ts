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
 * if `ca` contains no valid certificate.
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
      'ca-file contains no valid certificate in PEM form (-----BEGIN CERTIFICATE-----): check the file.',
      { cause },
    )
  }
}
