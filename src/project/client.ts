import { ArtifactError, AuthenticationError, ConfigError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { versionSchema } from '../core/identifiers.ts'
import { parseSealedSignature } from '../core/trust/sealed-signature.ts'
import type { FetchedArtifact } from '../core/trust/signature.ts'
import { decodeBase64 } from '../core/trust/strict-base64.ts'
import type { JsonAnswer, Wire } from '../net/wire.ts'
import { refusalOf } from './answers.ts'
import { authorizeAnswerSchema, descriptorAnswerSchema, latestAnswerSchema, type ReportBody } from './bodies.ts'
import { resolveDownloadUrl } from './download-url.ts'
import { parseAnswer } from './parse-answer.ts'
import { HubSession, type ProjectAccess } from './session.ts'

const CALL_TIMEOUT_MS = 60_000
const DEK_BYTES = 32

/** What the hub is spoken to with; a report must also go out after a cancel. */
export interface HubWires {
  wire: Wire
  reportWire: Wire
}

/** Where an artifact is and who vouches for it, as the hub says; nothing of it is verified. */
export interface ArtifactDescriptor {
  version: string
  downloadUrl: URL
  /** Base64 of 64 bytes. */
  signature: string
  /** To be compared with the pinned keys. */
  signerPublicKey: string
}

export interface ArtifactDownload {
  /** An open, empty file of ours. */
  fd: number
  maxBytes: number
  /** Overall, retries included. */
  timeoutMs: number
  onProgress: (received: number, total: number | undefined) => void
}

export interface ProjectClient {
  /** Exchanges the devkey for an access token, which the client keeps (contract 5.2, rule 1). */
  authenticate(): Promise<void>
  /** The latest published version. Throws ArtifactError `no_published_version` as well. */
  readLatestVersion(): Promise<string>
  /** Throws SignatureError `missing_signature` or `invalid_signature_format` as well. */
  readDescriptor(version: string): Promise<ArtifactDescriptor>
  /** Saves the artifact. The token goes along to the hub's own origin only (contract 2.2, `download_url`). */
  downloadArtifact(descriptor: ArtifactDescriptor, download: ArtifactDownload): Promise<FetchedArtifact>
  /**
   * The 32 bytes of the artifact's key, the caller's to wipe (contract 5.2, rule 3). Throws ArtifactError
   * `decryption_failed` as well, when the hub released something else.
   */
  authorize(deploymentCredential: string, signature: string): Promise<Buffer>
  /**
   * Sends one report and resolves with the answer, whatever its status. Where a token from earlier is refused, it authenticates
   * once more and sends the report again. `timeoutMs` is for all of it.
   */
  sendReport(body: ReportBody, retry: boolean, timeoutMs: number): Promise<JsonAnswer>
}

/**
 * The client side of the project contract for one project. Answers other than 2xx become the errors of contract 7, other
 * answers that are not what the contract says `bad_response`; besides, what the wire throws. A call without a token
 * authenticates first. Throws ConfigError `invalid_input` for a project id or version that must not get into a path.
 */
export function createProjectClient({ wire, reportWire }: HubWires, access: ProjectAccess): ProjectClient {
  const session = new HubSession(access)
  return {
    async authenticate() {
      await session.authenticate(wire, CALL_TIMEOUT_MS)
    },
    readLatestVersion: () => readLatestVersion(session, wire),
    readDescriptor: version => readDescriptor(session, wire, version),
    downloadArtifact: (descriptor, download) => downloadArtifact(session, wire, descriptor, download),
    authorize: async (credential, signature) => {
      const text = await requestDek(session, wire, credential, signature)
      const dek = decodeDek(text, session.projectId)
      access.hide(text)
      return dek
    },
    sendReport: (body, retry, timeoutMs) => sendReport(session, reportWire, { body, retry, timeoutMs }),
  }
}

async function readLatestVersion(session: HubSession, wire: Wire): Promise<string> {
  const subject = `project ${session.projectId}`
  const answer = await read(session, wire, 'versions', 'latest')
  const { version } = parseAnswer('latest', answer, latestAnswerSchema, subject)
  if (version !== null) return version
  throw new ArtifactError(
    'no_published_version',
    `The hub has no published version of ${subject}: publish one, or name a version.`,
  )
}

async function readDescriptor(session: HubSession, wire: Wire, version: string): Promise<ArtifactDescriptor> {
  verifyVersion(version)
  const answer = await read(session, wire, 'artifacts', version)
  const descriptor = parseAnswer('artifact', answer, descriptorAnswerSchema, artifactOf(session, version))
  const signature = descriptor.signature ?? ''
  parseSealedSignature(signature)
  const downloadUrl = resolveDownloadUrl(descriptor.download_url, answer.url, session.hub)
  return { version, downloadUrl, signature, signerPublicKey: descriptor.signer_public_key }
}

async function downloadArtifact(
  session: HubSession,
  wire: Wire,
  { version, downloadUrl }: ArtifactDescriptor,
  { fd, maxBytes, timeoutMs, onProgress }: ArtifactDownload,
): Promise<FetchedArtifact> {
  const credentials = await session.credentialsFor(downloadUrl, wire, CALL_TIMEOUT_MS)
  const answer = await wire.download({ url: downloadUrl.href, credentials, fd, maxBytes, timeoutMs, onProgress })
  if (!answer.ok) throw refusalOf('download', answer, artifactOf(session, version))
  return { fd, size: answer.size, sha256: answer.sha256 }
}

async function requestDek(session: HubSession, wire: Wire, credential: string, signature: string): Promise<string> {
  const answer = await session.request(wire, ['deployments', 'authorize'], {
    method: 'POST',
    body: { deployment_credential: credential, artifact_signature: signature },
    retry: 'connection-only',
    timeoutMs: CALL_TIMEOUT_MS,
  })
  return parseAnswer('authorize', answer, authorizeAnswerSchema, `project ${session.projectId}`).dek
}

function decodeDek(dek: string, projectId: string): Buffer {
  const bytes = decodeBase64(dek, DEK_BYTES)
  if (bytes !== undefined) return bytes
  throw new ArtifactError(
    'decryption_failed',
    `The key that the hub released for project ${projectId} must be base64 of ${DEK_BYTES} bytes and is not: nothing was installed. Tell who runs the hub.`,
  )
}

interface Report {
  body: ReportBody
  retry: boolean
  timeoutMs: number
}

async function sendReport(session: HubSession, wire: Wire, { body, retry, timeoutMs }: Report): Promise<JsonAnswer> {
  const endsAt = performance.now() + timeoutMs
  const remainingMs = () => Math.max(1, endsAt - performance.now())
  const isFromEarlier = session.hasToken
  const send = () =>
    session.request(wire, ['deployments', 'report'], {
      method: 'POST',
      body,
      retry: retry ? 'transient' : 'never',
      timeoutMs: remainingMs(),
    })
  const first = await send()
  if (first.status !== 401 || !isFromEarlier || !(await renewToken(session, wire, remainingMs()))) return first
  const second = await send()
  return { ...second, attempts: first.attempts + second.attempts }
}

/** Whether the hub still takes the devkey. */
async function renewToken(session: HubSession, wire: Wire, timeoutMs: number): Promise<boolean> {
  try {
    await session.authenticate(wire, timeoutMs)
    return true
  } catch (error) {
    if (error instanceof AuthenticationError) return false
    throw error
  }
}

function read(session: HubSession, wire: Wire, ...parts: string[]): Promise<JsonAnswer> {
  const request = { method: 'GET', retry: 'transient', timeoutMs: CALL_TIMEOUT_MS } as const
  return session.request(wire, ['projects', session.projectId, ...parts], request)
}

function verifyVersion(version: string): void {
  if (versionSchema.safeParse(version).success) return
  throw new ConfigError('invalid_input', `"${cleanForeignText(version, 60)}" is not a version: name another one.`)
}

function artifactOf(session: HubSession, version: string): string {
  return `version ${version} of project ${session.projectId}`
}
