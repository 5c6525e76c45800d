import { ArtifactError, ConfigError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { versionSchema } from '../../core/identifiers.ts'
import { parseSealedSignature } from '../../core/trust/sealed-signature.ts'
import type { FetchedArtifact } from '../../core/trust/signature.ts'
import { decodeBase64 } from '../../core/trust/strict-base64.ts'
import type { HubWires } from '../../install/deployment/deployment.ts'
import type { ReportLimits } from '../../install/reports/report-sender.ts'
import type { JsonAnswer } from '../../net/wire.ts'
import { parseAnswer, refusalOf } from './answers.ts'
import {
  authorizeAnswerSchema,
  descriptorAnswerSchema,
  isSecretWord,
  latestAnswerSchema,
  type ReportBody,
} from './bodies.ts'
import { resolveDownloadUrl } from './download-url.ts'
import { CALL_TIMEOUT_MS, HubSession, type ProjectAccess } from './session.ts'

const DEK_BYTES = 32

/** The location, signature and signer of an artifact, as the hub gives them; none of them is verified. */
export interface ArtifactDescriptor {
  version: string
  downloadUrl: URL
  /** Base64 of 64 bytes. */
  signature: string
  /** To be compared with the pinned keys. */
  signerPublicKey: string
}

export interface ArtifactDownload {
  /** An open, empty file that belongs to the caller. */
  fd: number
  maxBytes: number
  /** See `DownloadRequest`. */
  isFixedMax: boolean
  /** The overall limit, retries included. */
  timeoutMs: number
  onProgress: (received: number, total: number | undefined) => void
}

export interface ProjectClient {
  /** Exchanges the devkey for an access token, which the client keeps (contract 5.2, rule 1). */
  authenticate(): Promise<void>
  /** Reads the latest published version. Also throws ArtifactError `no_published_version`. */
  readLatestVersion(): Promise<string>
  /**
   * Also throws SignatureError `missing_signature` or `invalid_signature_format`, and ConfigError `insecure_url` for
   * the `download_url`.
   */
  readDescriptor(version: string): Promise<ArtifactDescriptor>
  /** Saves the artifact. Sends the token only to the hub's own origin (contract 2.2, `download_url`). */
  downloadArtifact(descriptor: ArtifactDescriptor, download: ArtifactDownload): Promise<FetchedArtifact>
  /**
   * Returns the 32 bytes of the artifact's key, which the caller wipes (contract 5.2, rule 3). Also throws
   * ArtifactError `decryption_failed` if the text that the hub releases is not such a key.
   */
  authorize(deploymentCredential: string, signature: string): Promise<Buffer>
  /** Sends one report. Resolves with the answer even if it is a refusal. */
  sendReport(report: OutgoingReport): Promise<JsonAnswer>
}

/** A report and its limits, which cover authentication, sending and retries. */
export interface OutgoingReport extends ReportLimits {
  readonly body: ReportBody
}

/**
 * The client side of the project contract for one project. An answer other than 2xx becomes the error of contract 7,
 * except that `sendReport` returns that answer. Any other answer that does not match the contract becomes
 * `bad_response`. Also throws what the wire throws. A call without a token authenticates first, and a call whose token
 * may have expired authenticates once more (`HubSession.withToken`). Throws ConfigError `invalid_input` for a project
 * id or version that must not become part of a path.
 */
export function createProjectClient({ wire, reportWire }: HubWires, access: ProjectAccess): ProjectClient {
  const session = new HubSession(access, wire)
  const reporting = session.over(reportWire)
  return {
    async authenticate() {
      await session.authenticate({ timeoutMs: CALL_TIMEOUT_MS })
    },
    readLatestVersion: async () => await readLatestVersion(session),
    readDescriptor: async version => await readDescriptor(session, version),
    downloadArtifact: async (descriptor, download) => await downloadArtifact(session, descriptor, download),
    async authorize(deploymentCredential, signature) {
      const text = await requestDek(session, {
        deployment_credential: deploymentCredential,
        artifact_signature: signature,
      })
      // Masks the text before decoding it, because a key in a wrong form may still be the key.
      if (isSecretWord(text.trim())) access.secrets.hide(text.trim())
      return decodeDek(text, session.projectId)
    },
    sendReport: async report => await sendReport(reporting, report),
  }
}

async function readLatestVersion(session: HubSession): Promise<string> {
  const subject = `project ${session.projectId}`
  const answer = await read(session, ['versions', 'latest'])
  const { version } = parseAnswer({ call: 'latest', subject }, answer, latestAnswerSchema)
  if (version !== null) return version
  throw new ArtifactError(
    'no_published_version',
    `The hub has no published version of ${subject}: publish one, or name a version.`,
  )
}

async function readDescriptor(session: HubSession, version: string): Promise<ArtifactDescriptor> {
  verifyVersion(version)
  const answer = await read(session, ['artifacts', version])
  const call = { call: 'artifact', subject: artifactOf(session, version) } as const
  const descriptor = parseAnswer(call, answer, descriptorAnswerSchema)
  const signature = descriptor.signature ?? ''
  parseSealedSignature(signature)
  const downloadUrl = resolveDownloadUrl(descriptor.download_url, answer.url, session.hub)
  return { version, downloadUrl, signature, signerPublicKey: descriptor.signer_public_key }
}

async function downloadArtifact(
  session: HubSession,
  { version, downloadUrl }: ArtifactDescriptor,
  { timeoutMs, ...download }: ArtifactDownload,
): Promise<FetchedArtifact> {
  const file = { url: downloadUrl.href, hub: session.hub.href, ...download }
  const answer = await session.withToken(
    downloadUrl,
    { timeoutMs },
    async more => await session.wire.download({ ...file, ...more }),
  )
  if (!answer.ok) throw refusalOf({ call: 'download', subject: artifactOf(session, version) }, answer)
  return { fd: download.fd, size: answer.size, sha256: answer.sha256 }
}

async function requestDek(session: HubSession, body: Record<string, string>): Promise<string> {
  const answer = await session.request(['deployments', 'authorize'], {
    method: 'POST',
    body,
    retry: 'connection-only',
    timeoutMs: CALL_TIMEOUT_MS,
    hasCredential: true,
  })
  const call = { call: 'authorize', subject: `project ${session.projectId}` } as const
  return parseAnswer(call, answer, authorizeAnswerSchema).dek
}

function decodeDek(dek: string, projectId: string): Buffer {
  const bytes = decodeBase64(dek, DEK_BYTES)
  if (bytes !== undefined) return bytes
  throw new ArtifactError(
    'decryption_failed',
    `The hub released a key for project ${projectId} that is not base64 of ${DEK_BYTES} bytes: nothing was installed. Report this to the hub's operator.`,
  )
}

async function sendReport(
  session: HubSession,
  { body, retry, timeoutMs, signal }: OutgoingReport,
): Promise<JsonAnswer> {
  return await session.request(['deployments', 'report'], {
    method: 'POST',
    body,
    retry: retry ? 'transient' : 'never',
    timeoutMs,
    signal,
  })
}

async function read(session: HubSession, route: readonly string[]): Promise<JsonAnswer> {
  const request = { method: 'GET', retry: 'transient', timeoutMs: CALL_TIMEOUT_MS } as const
  return await session.request(['projects', session.projectId, ...route], request)
}

function verifyVersion(version: string): void {
  if (versionSchema.safeParse(version).success) return
  throw new ConfigError('invalid_input', `"${cleanForeignText(version, 60)}" is not a version: name another version.`)
}

function artifactOf(session: HubSession, version: string): string {
  return `version ${version} of project ${session.projectId}`
}
