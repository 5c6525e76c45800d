import type { ExtractionLimits } from '../core/archive/archive-limits.ts'
import type { GitTokens } from '../core/content/git-tokens.ts'
import type { DeploymentTools } from '../install/deployment/deployment.ts'

/** The operator's inputs for parts that a project names but does not contain. */
export interface SourceInputs {
  /**
   * The base URL of the marketplace. The inputs for the marketplace are needed only if a project takes a part from
   * there.
   */
  readonly hubUrl: string | undefined
  /** The base URL of that marketplace's services; the default is `hubUrl`. */
  readonly servicesUrl?: string | undefined
  readonly apiKey: string | undefined
  readonly signingSecret: string | undefined
  readonly gitTokens: GitTokens
}

/** The same inputs, and the rules of the project's own request that also apply to its parts. */
export interface SourceRequest {
  readonly marketplace: Omit<SourceInputs, 'gitTokens'>
  readonly gitTokens: GitTokens
  /**
   * The hub of the project itself. A source may be at a loopback or link-local address, or at one of this host's own
   * addresses, only if the hub has the same address.
   */
  readonly hubUrl: string
  /** PEM. */
  readonly ca: string | undefined
  readonly allowDowngrade: boolean
  readonly downloadTimeoutMs: number
  readonly maxArtifactBytes: number
  readonly extraction: ExtractionLimits
}

export type SourceTools = Pick<DeploymentTools, 'wires' | 'log' | 'signal' | 'now' | 'runner'>
