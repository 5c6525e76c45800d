import { join } from 'node:path'
import type { ExtractionLimits } from '../core/archive/archive-limits.ts'
import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import type { Kind } from '../core/identifiers.ts'
import { bytesInWords, countInWords, shortDigest } from '../core/quantities.ts'
import { type VerifiedArtifact, verifyHmacSignature, verifyPinnedDigest } from '../core/trust/signature.ts'
import { extractZip } from '../install/archive/zip/extract-zip.ts'
import { makeOpenDirectorySync } from '../install/files/durable-files.ts'
import type { ExtractedFiles, ExtractedTree } from '../install/files/trees/extracted-tree.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import type { Tools } from '../install/transaction/context.ts'
import type { ServedArtifact } from './api/client.ts'

/** The operator's expectations of the artifact itself. */
export interface ArtifactRules {
  readonly kind: Kind
  /** The only digest to accept. */
  readonly artifactSha256: string | undefined
  readonly extraction: ExtractionLimits
}

/** An extracted tree, and the folder that contains it. */
export interface StagedTree {
  readonly staged: string
  readonly tree: ExtractedTree<ExtractedFiles>
}

export interface UnpackedArtifact extends StagedTree {
  /** Undefined for a service. */
  readonly pluginYaml: PluginYaml | undefined
}

type Checking = { readonly request: ArtifactRules; readonly tools: Pick<Tools, 'log' | 'signal'> }

/**
 * Vouches for an artifact by its HMAC (contract 4.3, rule 3), and by the pinned digest if there is one. Throws
 * SignatureError if either check fails.
 */
export function verifyServed(
  { request, tools }: Checking,
  { artifact, hmac, signatureHeader }: Pick<ServedArtifact, 'artifact' | 'hmac' | 'signatureHeader'>,
): VerifiedArtifact {
  const verified = verifyHmacSignature(artifact, hmac, signatureHeader)
  tools.log.did(`valid, sha256 ${shortDigest(artifact.sha256)}`)
  if (request.artifactSha256 !== undefined) verifyPinnedDigest(verified, request.artifactSha256)
  return verified
}

/**
 * Extracts a verified artifact into `folder` and reads a plugin's `plugin.yaml`. Throws as `extractZip` and
 * `readPluginYaml` do.
 */
export async function unpackArtifact(
  { request, tools }: Checking,
  verified: VerifiedArtifact,
  folder: string,
): Promise<UnpackedArtifact> {
  const staged = join(folder, 'tree')
  makeOpenDirectorySync(staged)
  const tree = await extractZip(verified, { target: staged, limits: request.extraction, signal: tools.signal })
  const flattened = tree.flattened === null ? '' : `, without their top-level directory ${tree.flattened}`
  tools.log.did(`${countInWords(tree.files.length, 'file')}, ${bytesInWords(tree.bytes)}${flattened}`)
  return { staged, tree, pluginYaml: request.kind === 'plugin' ? readPluginYaml(staged) : undefined }
}
