import { unsafeEntry } from '../core/archive/planned-tree.ts'
import type { ExternalSource, GitSource, MarketplaceSource } from '../core/content/source.ts'
import { ArtifactError, ConfigError, withSubject } from '../core/errors.ts'
import { bytesInWords, cleanForeignText, countInWords, listFirst, listNames } from '../core/text.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { type NamedTree, treeBelow } from '../install/files/extracted-tree.ts'
import { openPrivateFileSync } from '../install/files/open.ts'
import type { SourcePast, SourceRecord } from '../install/host/rows.ts'
import { readPluginYaml } from '../install/steps/plugin-sig.ts'
import { createMarketplaceClient, type InputNames } from '../marketplace/hub.ts'
import {
  decideVersion,
  fetchRequested,
  noticeOtherVersion,
  unpackArtifact,
  verifyServed,
} from '../marketplace/prepare.ts'
import { fetchGitTree } from './git.ts'
import {
  type OfferedVersion,
  refuseOlder,
  refuseReused,
  SourceBudget,
  type SourceCost,
  type SourceInputs,
  type SourceRequest,
  type SourceTools,
} from './request.ts'

/** The project action's inputs for the marketplace that parts come from. */
const SOURCE_INPUTS: InputNames = {
  hub: 'sources-hub-url',
  services: 'sources-services-url',
  deployments: 'sources-hub-url',
  apiKey: 'sources-api-key',
  signingSecret: 'sources-signing-secret',
  subject: "the slug, kind and version in the project's manifest.json",
}
const SLUG_KEYS = 'sources-api-keys'

interface PartDestination {
  readonly folder: string
  readonly past: SourcePast
  /** True if the signed manifest has the digest of the tree. */
  readonly isPinned: boolean
}

interface PartFetching {
  readonly request: SourceRequest
  readonly tools: SourceTools
}

/**
 * Fetches a plugin or service by the marketplace contract's rules for signatures, archives and versions. Throws
 * SignatureError, ArtifactError `version_mismatch`, `no_published_version`, `version_reused` or `invalid_manifest`
 * (also for a subdirectory that the artifact does not have), and DeploymentError `downgrade_refused` or `disk_full`.
 */
async function fetchFromMarketplace(
  { request, tools }: PartFetching,
  source: MarketplaceSource,
  { folder, past, isPinned }: PartDestination,
): Promise<OfferedVersion & { staged: string; tree: NamedTree; cost: SourceCost }> {
  const { hubUrl = '', servicesUrl = hubUrl, apiKeys, signingSecret = '' } = request.marketplace
  const ownKey = apiKeys.get(source.slug)
  const apiKey = ownKey ?? request.marketplace.apiKey ?? ''
  const inputs = ownKey === undefined ? SOURCE_INPUTS : { ...SOURCE_INPUTS, apiKey: SLUG_KEYS }
  const bases = { hub: hubUrl, services: servicesUrl, deployments: hubUrl }
  const base = source.kind === 'plugin' ? hubUrl : servicesUrl
  const access = { bases, apiKey, kind: source.kind, slug: source.slug, inputs }
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
    const { staged, tree } = await unpackArtifact(checking, verified, folder)
    const part = subdirectoryPart({ staged, tree }, source)
    const pluginYaml = source.kind === 'plugin' ? readPluginYaml(part.staged) : undefined
    const decided = decideVersion(found, pluginYaml)
    const { version } = decided
    noticeOtherVersion(tools.log, found, decided)
    const from = `${base} ${source.kind} ${source.slug}`
    // A hub may pack the same files anew for each request. This host knows them by the digest that they had at first.
    const same = past.history.find(
      had =>
        had.source.from === from &&
        isSameVersion(had.version ?? '', version) &&
        had.hasContent?.({ ...part, pluginYaml }),
    )
    const offered = { version, source: same?.source ?? { from, id: verified.sha256 } }
    if (!isPinned) refuseReused(offered, past.history)
    if (source.version === 'latest' && !request.allowDowngrade) refuseOlder(offered, past)
    const cost = { received: found.served.artifact.size, tree }
    return { ...part, ...offered, cost }
  } finally {
    file.close()
  }
}

function subdirectoryPart(
  { staged, tree }: { staged: string; tree: NamedTree },
  { slug, subdirectory }: MarketplaceSource,
) {
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

/** A part of a project, the folder for its tree, and the history of its place. */
interface WantedSource {
  readonly part: {
    readonly shelf: string
    readonly id: string
    readonly source: ExternalSource
    readonly sha256: string | null
  }
  readonly folder: string
  readonly past: SourcePast
}

interface Supplied {
  readonly staged: string
  readonly tree: NamedTree
  readonly version: string | undefined
  readonly source: SourceRecord
}

const MARKETPLACE_INPUTS = {
  hubUrl: SOURCE_INPUTS.hub,
  apiKey: SOURCE_INPUTS.apiKey,
  signingSecret: SOURCE_INPUTS.signingSecret,
} as const satisfies Record<keyof Omit<SourceInputs, 'servicesUrl' | 'gitTokens' | 'apiKeys'>, string>

/**
 * Fetches parts from a marketplace and from git servers. A part is verified by the marketplace's signature, or by the
 * commit or digest in the signed manifest. Sends no report to these servers.
 */
export class SourceSupplier {
  readonly #request: SourceRequest
  readonly #tools: SourceTools
  readonly #budget: SourceBudget

  constructor(request: SourceRequest, tools: SourceTools) {
    this.#request = request
    this.#budget = new SourceBudget(request)
    this.#tools = tools
  }

  /**
   * Throws ConfigError `missing_input` if a part comes from a marketplace and an input for the marketplace is missing.
   */
  requireInputs(parts: readonly Pick<WantedSource, 'part'>['part'][]): void {
    const { marketplace } = this.#request
    const keys = Object.keys(MARKETPLACE_INPUTS) as (keyof typeof MARKETPLACE_INPUTS)[]
    const lacks = (key: keyof typeof MARKETPLACE_INPUTS, slug: string): boolean =>
      marketplace[key] === undefined && !(key === 'apiKey' && marketplace.apiKeys.has(slug))
    const wanted = parts.flatMap(({ shelf, id, source }) =>
      source.from === 'marketplace'
        ? [{ name: `${shelf}/${id}`, lacking: keys.filter(key => lacks(key, source.slug)) }]
        : [],
    )
    const ids = wanted.filter(({ lacking }) => lacking.length > 0).map(({ name }) => name)
    const missing = keys
      .filter(key => wanted.some(({ lacking }) => lacking.includes(key)))
      .map(key => MARKETPLACE_INPUTS[key])
    if (missing.length === 0) return
    throw new ConfigError(
      'missing_input',
      `The project takes ${listFirst(ids, 20)} from a marketplace, but the step has no ${listNames(missing)}: nothing was installed. Add ${missing.length === 1 ? 'this input' : 'these inputs'} to the step's "with:".`,
    )
  }

  /** Throws what the source's own client throws, with the part's name at the start of the message. */
  async fetch(wanted: WantedSource): Promise<Supplied> {
    const name = `${wanted.part.shelf}/${wanted.part.id}`
    try {
      return await this.#fetch(wanted, name)
    } catch (error) {
      throw withSubject(name, error)
    }
  }

  async #fetch(wanted: WantedSource, name: string): Promise<Supplied> {
    const { part, folder } = wanted
    const { source } = part
    this.#tools.log.info(`${name}: fetching ${describeSource(source)}.`)
    const context = { request: { ...this.#request, ...this.#budget.left }, tools: this.#tools }
    if (source.from === 'marketplace') {
      const { cost, ...supplied } = await fetchFromMarketplace(context, source, {
        ...wanted,
        isPinned: part.sha256 !== null,
      })
      this.#budget.spend(cost)
      return supplied
    }
    const { staged, tree, commit, received } = await fetchGitTree(context, source, folder)
    this.#budget.spend({ received, tree })
    this.#tools.log.info(
      `${name}: commit ${commit}, ${countInWords(tree.files.length, 'file')}, ${bytesInWords(tree.bytes)}.`,
    )
    return { staged, tree, version: undefined, source: { from: source.url, id: commit } }
  }
}

function describeSource(source: MarketplaceSource | GitSource): string {
  const below = source.subdirectory === undefined ? '' : `, subdirectory ${source.subdirectory}`
  return source.from === 'git'
    ? `${source.url} at ${source.ref}${below}`
    : `${source.kind} ${source.slug}, version ${source.version}${below}, from the marketplace`
}
