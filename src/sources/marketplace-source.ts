import { unsafeEntry } from '../core/archive/archive-entry.ts'
import type { MarketplaceSource } from '../core/content/external-source.ts'
import { ArtifactError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { openPrivateFileSync } from '../install/files/private-file.ts'
import { type NamedTree, treeBelow } from '../install/files/trees/tree-below.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import { createMarketplaceClient } from '../marketplace/api/client.ts'
import type { InputNames } from '../marketplace/api/input-names.ts'
import { unpackArtifact, verifyServed } from '../marketplace/artifact-checks.ts'
import { fetchRequested, noticeOtherVersion } from '../marketplace/fetch.ts'
import { decideVersion } from '../marketplace/version.ts'
import type { SourceCost } from './source-budget.ts'
import { type OfferedVersion, refuseOlder, refuseReused, type SourcePast } from './source-history.ts'
import type { SourceRequest, SourceTools } from './source-request.ts'

/** The project action's inputs for the marketplace that parts come from. */
export const SOURCE_INPUTS: InputNames = {
  hub: 'sources-hub-url',
  services: 'sources-services-url',
  deployments: 'sources-hub-url',
  apiKey: 'sources-api-key',
  signingSecret: 'sources-signing-secret',
  subject: "the slug, kind and version in the project's manifest.json",
}

interface Destination {
  readonly folder: string
  readonly past: SourcePast
  /** True if the signed manifest has the digest of the tree. */
  readonly isPinned: boolean
}

interface Fetching {
  readonly request: SourceRequest
  readonly tools: SourceTools
}

/**
 * Fetches a plugin or service by the marketplace contract's rules for signatures, archives and versions. Throws
 * SignatureError, ArtifactError `version_mismatch`, `no_published_version`, `version_reused` or `invalid_manifest`
 * (also for a subdirectory that the artifact does not have), and DeploymentError `downgrade_refused` or `disk_full`.
 * Also throws what the marketplace's client and `unpackArtifact` throw.
 */
export async function fetchFromMarketplace(
  { request, tools }: Fetching,
  source: MarketplaceSource,
  { folder, past, isPinned }: Destination,
): Promise<OfferedVersion & { staged: string; tree: NamedTree; cost: SourceCost }> {
  const { hubUrl = '', servicesUrl = hubUrl, apiKey = '', signingSecret = '' } = request.marketplace
  const bases = { hub: hubUrl, services: servicesUrl, deployments: hubUrl }
  const base = source.kind === 'plugin' ? hubUrl : servicesUrl
  const access = { bases, apiKey, kind: source.kind, slug: source.slug, inputs: SOURCE_INPUTS }
  const client = createMarketplaceClient(tools.wires.wire, access)
  const { maxArtifactBytes, downloadTimeoutMs } = request
  const asked = { version: source.version, maxArtifactBytes, downloadTimeoutMs, signingSecret }
  const file = openPrivateFileSync(tools.runner.temporaryFolder)
  try {
    const found = await fetchRequested({ request: asked, client, tools, fd: file.fd })
    // With a subdirectory, only the plugin.yaml in that directory counts, so the artifact as a whole needs none.
    const kind = source.subdirectory === undefined ? source.kind : 'service'
    const checking = { request: { kind, artifactSha256: undefined, extraction: request.extraction }, tools }
    const verified = verifyServed(checking, found.served)
    const unpacked = await unpackArtifact(checking, verified, folder)
    const { staged } = unpacked
    const tree = { ...unpacked.tree, files: [...unpacked.tree.files] }
    const part = partOf({ staged, tree }, source)
    const pluginYaml = source.kind === 'plugin' ? readPluginYaml(part.staged) : undefined
    const decided = decideVersion(found, pluginYaml)
    const { version } = decided
    noticeOtherVersion(tools.log, found, decided)
    const offered = { version, source: { from: `${base} ${source.kind} ${source.slug}`, id: verified.sha256 } }
    if (!isPinned) refuseReused(offered, past.history)
    if (source.version === 'latest' && !request.allowDowngrade) refuseOlder(offered, past)
    const cost = { received: found.served.artifact.size, tree }
    return { ...part, ...offered, cost }
  } finally {
    file.close()
  }
}

function partOf({ staged, tree }: { staged: string; tree: NamedTree }, { slug, subdirectory }: MarketplaceSource) {
  if (subdirectory === undefined) return { staged, tree }
  if (!tree.directories.includes(subdirectory)) {
    throw new ArtifactError(
      'invalid_manifest',
      `The project's manifest.json names the directory ${cleanForeignText(subdirectory, 200)} of ${slug}, whose artifact contains no such directory: nothing was installed. The publisher must correct the source of the part and seal the project again.`,
    )
  }
  for (const { path, reach } of tree.symlinks) {
    if (path.startsWith(`${subdirectory}/`) && !`${reach}/`.startsWith(`${subdirectory}/`))
      throw unsafeEntry(path, `is a symlink that leads out of ${subdirectory}, which is the whole part`)
  }
  return { staged: `${staged}/${subdirectory}`, tree: treeBelow(tree, subdirectory) }
}
