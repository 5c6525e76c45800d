import type { ExternalSource, GitSource, MarketplaceSource } from '../core/content/external-source.ts'
import { ConfigError, withSubject } from '../core/errors.ts'
import { listNames } from '../core/foreign-text.ts'
import { bytesInWords, countInWords, listFirst } from '../core/quantities.ts'
import type { NamedTree } from '../install/files/trees/tree-below.ts'
import type { SourceRecord } from '../install/host/installed/rows.ts'
import { fetchGitTree } from './git/git-source.ts'
import { fetchFromMarketplace, SOURCE_INPUTS } from './marketplace-source.ts'
import { SourceBudget } from './source-budget.ts'
import type { SourcePast } from './source-history.ts'
import type { SourceInputs, SourceRequest, SourceTools } from './source-request.ts'

/** A part of a project, the folder for its tree, and the history of its place. */
export interface Wanted {
  readonly part: {
    readonly shelf: string
    readonly id: string
    readonly source: ExternalSource
    readonly sha256: string | null
  }
  readonly folder: string
  readonly past: SourcePast
}

export interface Supplied {
  readonly staged: string
  readonly tree: NamedTree
  readonly version: string | undefined
  readonly source: SourceRecord
}

const MARKETPLACE_INPUTS = {
  hubUrl: SOURCE_INPUTS.hub,
  apiKey: SOURCE_INPUTS.apiKey,
  signingSecret: SOURCE_INPUTS.signingSecret,
} as const satisfies Record<keyof Omit<SourceInputs, 'servicesUrl' | 'gitTokens'>, string>

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
  requireInputs(parts: readonly Pick<Wanted, 'part'>['part'][]): void {
    const ids = parts.filter(({ source }) => source.from === 'marketplace').map(({ shelf, id }) => `${shelf}/${id}`)
    const { marketplace } = this.#request
    const keys = Object.keys(MARKETPLACE_INPUTS) as (keyof typeof MARKETPLACE_INPUTS)[]
    const missing = keys.filter(key => marketplace[key] === undefined).map(key => MARKETPLACE_INPUTS[key])
    if (ids.length === 0 || missing.length === 0) return
    throw new ConfigError(
      'missing_input',
      `The project takes ${listFirst(ids, 20)} from a marketplace, but the step has no ${listNames(missing)}: nothing was installed. Add ${missing.length === 1 ? 'this input' : 'these inputs'} to the step's "with:".`,
    )
  }

  /** Throws what the source's own client throws, with the part's name at the start of the message. */
  async fetch(wanted: Wanted): Promise<Supplied> {
    const name = `${wanted.part.shelf}/${wanted.part.id}`
    try {
      return await this.#fetch(wanted, name)
    } catch (error) {
      throw withSubject(name, error)
    }
  }

  async #fetch(wanted: Wanted, name: string): Promise<Supplied> {
    const { part, folder } = wanted
    const { source } = part
    this.#tools.log.info(`${name}: fetching ${describe(source)}.`)
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

function describe(source: MarketplaceSource | GitSource): string {
  const below = source.subdirectory === undefined ? '' : `, subdirectory ${source.subdirectory}`
  return source.from === 'git'
    ? `${source.url} at ${source.ref}${below}`
    : `${source.kind} ${source.slug}, version ${source.version}${below}, from the marketplace`
}
