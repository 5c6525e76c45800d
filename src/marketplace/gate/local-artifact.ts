import { createHash, createHmac } from 'node:crypto'
import { close, fstatSync, read, type Stats } from 'node:fs'
import { promisify } from 'node:util'
import { ArchiveError, ConfigError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { parseSignatureHeader } from '../../core/trust/signature.ts'
import { watchDownload } from '../../install/deployment/download-progress.ts'
import { NotReadable, openBelowSync } from '../../install/files/open-below.ts'
import type { Tools } from '../../install/transaction/context.ts'
import { BlockWriter } from '../../net/block-writer.ts'
import type { ServedArtifact } from '../api/client.ts'

const READ_BYTES = 256 * 1024
const readAt = promisify(read)

/** A file in the workspace, and its signature as the publisher gives it. */
export interface LocalSource {
  readonly workspace: string
  /** Relative to the workspace, or an absolute path below it. */
  readonly path: string
  /** `hmac_sha256:<64 hex digits>` */
  readonly signature: string
}

export interface LocalReading {
  readonly source: LocalSource
  readonly request: { readonly signingSecret: string; readonly maxArtifactBytes: number }
  readonly tools: Pick<Tools, 'log' | 'now' | 'runner' | 'signal'>
  /** An open, empty file that belongs to the caller. */
  readonly fd: number
}

/**
 * Copies a file of the workspace into a file that no other process can reach. Exactly the verified bytes are then used,
 * even if the original changes afterwards. Throws SignatureError `invalid_signature_format`, ConfigError
 * `invalid_input` (anything but a regular file in the workspace, or a file that changes while it is read), ArchiveError
 * `archive_too_large`, DeploymentError `disk_full` or `host_not_writable`, and the signal's reason once the signal is
 * aborted.
 */
export async function readLocalArtifact(reading: LocalReading): Promise<ServedArtifact> {
  const { source } = reading
  parseSignatureHeader(source.signature, 'input')
  const file = openSource(source)
  try {
    const before = fstatSync(file)
    refuseTooLarge(reading, before.size)
    const copied = await copy(reading, file, before.size)
    if (isOther(before, fstatSync(file))) throw unusable(source, 'it was changed while it was read')
    return { ...copied, signatureHeader: source.signature, headerVersion: undefined, repo: undefined }
  } finally {
    close(file, () => {})
  }
}

function openSource(source: LocalSource): number {
  try {
    return openBelowSync(source.workspace, source.path)
  } catch (error) {
    if (error instanceof NotReadable) throw unusable(source, error.message)
    throw error
  }
}

async function copy(
  { request, tools, fd }: LocalReading,
  file: number,
  total: number,
): Promise<Pick<ServedArtifact, 'artifact' | 'hmac'>> {
  const sha256 = createHash('sha256')
  const hmac = createHmac('sha256', request.signingSecret)
  const writer = new BlockWriter(fd, block => {
    sha256.update(block)
    hmac.update(block)
  })
  const onProgress = watchDownload(tools)
  let size = 0
  try {
    for await (const piece of piecesOf(file, total, tools.signal)) {
      size += piece.length
      onProgress(size, total)
      await writer.add(piece)
    }
    await writer.finish()
  } finally {
    await writer.settle()
  }
  const signedFor = { apiKey: undefined, signingSecret: 'signing-secret' }
  return { artifact: { fd, size, sha256: sha256.digest('hex'), signedFor }, hmac: hmac.digest() }
}

/**
 * Reads at most one byte more than the file had at first: an extra byte means that the file has grown. Each piece is
 * valid until the next one is read.
 */
async function* piecesOf(file: number, total: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  const buffer = Buffer.allocUnsafeSlow(READ_BYTES)
  for (let position = 0; position <= total; ) {
    signal.throwIfAborted()
    const { bytesRead } = await readAt(file, buffer, 0, Math.min(READ_BYTES, total + 1 - position), position)
    if (bytesRead === 0) return
    position += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}

function isOther(before: Stats, after: Stats): boolean {
  return before.size !== after.size || before.mtimeMs !== after.mtimeMs || before.ctimeMs !== after.ctimeMs
}

function refuseTooLarge({ source, request: { maxArtifactBytes } }: LocalReading, bytes: number): void {
  if (bytes <= maxArtifactBytes) return
  throw new ArchiveError(
    'archive_too_large',
    `The artifact ${cleanForeignText(source.path)} has ${bytes} bytes, more than the ${maxArtifactBytes} that max-artifact-bytes allows. Raise max-artifact-bytes if the artifact is meant to be that large.`,
  )
}

function unusable({ path }: LocalSource, found: string): ConfigError {
  return new ConfigError(
    'invalid_input',
    `artifact-path must name a regular file in the workspace, but ${cleanForeignText(path)} cannot be used: ${found}.`,
  )
}
