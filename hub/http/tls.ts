import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { closeSync, fstatSync, openSync, readFileSync, type Stats } from 'node:fs'
import { createSecureContext } from 'node:tls'
import { HubError } from '../errors.ts'
import { unreadable } from '../files.ts'

/** Paths of PEM files: the certificate with its chain, and its private key. */
export interface TlsFiles {
  readonly certFile: string
  readonly keyFile: string
}

/** The certificate and key of a server, which are never logged. */
export interface TlsCredentials {
  readonly cert: Buffer
  readonly key: Buffer
}

export interface ReadTls {
  readonly credentials: TlsCredentials
  /** Sentences about a certificate that clients will refuse. */
  readonly warnings: readonly string[]
}

/** The permissions that only the key's owner may have. If root owns the key, a group may read it, too. */
const OTHERS_OF_OWN_KEY = 0o077
const OTHERS_OF_ROOTS_KEY = 0o037

/**
 * Reads the certificate and the key. Throws HubError 400 if a file cannot be read or contains no certificate or key in
 * PEM format, or if TLS cannot use the two together. Also throws it if the key does not belong to the certificate,
 * needs a passphrase, or can be read or changed by other users. `now` is in milliseconds since 1970.
 */
export function readTls({ certFile, keyFile }: TlsFiles, now: number): ReadTls {
  const { bytes: cert } = readPem('tls-cert', certFile)
  const { bytes: key, found } = readPem('tls-key', keyFile)
  requirePrivate(keyFile, found)
  const certificate = parseCertificate(certFile, cert)
  if (!certificate.checkPrivateKey(parseKey(keyFile, key)))
    throw new HubError(
      400,
      `The private key ${keyFile} does not belong to the certificate ${certFile}: name two files that were issued together. In ${certFile}, the server's certificate must come before its chain.`,
    )
  requireUsable({ certFile, keyFile }, { cert, key })
  return { credentials: { cert, key }, warnings: validityWarnings(certFile, certificate, now) }
}

/** The names that the certificate is for, with wildcards and addresses. */
export function serverNames({ cert }: TlsCredentials): string[] {
  const names = new X509Certificate(cert).subjectAltName ?? ''
  return [...names.matchAll(/(?:^|, )(?:DNS|IP Address):([\w.:*-]+)/g)].flatMap(([, name]) => name ?? [])
}

/** Throws HubError 400 for faults that only TLS itself finds: a broken chain, or a key that is too weak. */
function requireUsable({ certFile, keyFile }: TlsFiles, credentials: TlsCredentials): void {
  try {
    createSecureContext(credentials)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new HubError(
      400,
      `TLS cannot use the certificate ${certFile} with the key ${keyFile} (${code ?? 'no reason given'}): check every certificate of the chain, and make sure that the key has at least 2048 bits (RSA) or 256 bits (EC).`,
    )
  }
}

/** `found` describes the file that was read, even if another file has replaced it in the meantime. */
function readPem(option: string, path: string): { bytes: Buffer; found: Stats } {
  let file: number | undefined
  try {
    file = openSync(path, 'r')
    return { bytes: readFileSync(file), found: fstatSync(file) }
  } catch (error) {
    throw new HubError(400, `The file ${path} of --${option} ${unreadable(error)}.`)
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

function requirePrivate(path: string, { uid, mode }: Stats): void {
  const forbidden = uid === 0 ? OTHERS_OF_ROOTS_KEY : OTHERS_OF_OWN_KEY
  const octal = (mode & 0o777).toString(8).padStart(4, '0')
  if ((mode & forbidden) !== 0)
    throw new HubError(
      400,
      `Other users can read or change the private key ${path} (mode ${octal}): run "chmod 600 ${path}".`,
    )
}

function parseCertificate(path: string, pem: Buffer): X509Certificate {
  try {
    if (pem.includes('-----BEGIN')) return new X509Certificate(pem)
  } catch {
    // OpenSSL's own error does not help the operator.
  }
  throw new HubError(
    400,
    `${path} contains no valid certificate in PEM format: name the file that begins with the server's certificate.`,
  )
}

function parseKey(path: string, pem: Buffer): KeyObject {
  try {
    return createPrivateKey(pem)
  } catch {
    const problem = pem.includes('ENCRYPTED')
      ? 'needs a passphrase, which the hub cannot ask for: decrypt it with "openssl pkey"'
      : 'contains no valid private key in PEM format: name the file that was issued with the certificate'
    throw new HubError(400, `${path} ${problem}.`)
  }
}

function validityWarnings(path: string, { validFromDate, validToDate }: X509Certificate, now: number): string[] {
  const renew = 'clients will refuse it. Renew it, then send the hub SIGHUP.'
  if (now > validToDate.getTime()) return [`The certificate ${path} expired on ${dayOf(validToDate)}: ${renew}`]
  if (now < validFromDate.getTime())
    return [
      `The certificate ${path} is not valid before ${dayOf(validFromDate)}: until then, clients will refuse it. Check this machine's clock.`,
    ]
  return []
}

function dayOf(date: Date): string {
  return date.toISOString().slice(0, 10)
}
