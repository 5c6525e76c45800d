import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface Certificate {
  key: string
  cert: string
}

/** A self-signed certificate for `hub.test`, `localhost` and 127.0.0.1; undefined without openssl. */
export function makeCertificate(): Certificate | undefined {
  const folder = mkdtempSync(join(tmpdir(), 'hub-deploy-test-'))
  try {
    const key = join(folder, 'key.pem')
    const cert = join(folder, 'cert.pem')
    const made = spawnSync('openssl', [...OPENSSL_ARGUMENTS, '-keyout', key, '-out', cert], { stdio: 'ignore' })
    return made.status === 0 ? { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') } : undefined
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const OPENSSL_ARGUMENTS = [
  ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
  ...['-subj', '/CN=hub.test', '-addext', 'subjectAltName=DNS:hub.test,DNS:localhost,IP:127.0.0.1'],
]
