import type { ExtractionLimits } from '../core/archive/archive-limits.ts'
import type { GitTokens } from '../core/content/git-tokens.ts'
import type { DeploymentTools } from '../install/deployment/deployment.ts'

/** What the operator gives for parts that a project names but does not contain. */
export interface SourceInputs {
  /** Of the marketplace that supplies parts; each is needed once a project names such a part. */
  readonly hubUrl: string | undefined
  /** Where that marketplace mounts its services; default: `hubUrl`. */
  readonly servicesUrl?: string | undefined
  readonly apiKey: string | undefined
  readonly signingSecret: string | undefined
  readonly gitTokens: GitTokens
}

/** That, and the rules of the project's own request that hold for its parts too. */
export interface SourceRequest {
  readonly marketplace: Omit<SourceInputs, 'gitTokens'>
  readonly gitTokens: GitTokens
  /** Of the project itself: an address that it has may be reached. */
  readonly hubUrl: string
  /** PEM. */
  readonly ca: string | undefined
  readonly allowDowngrade: boolean
  readonly downloadTimeoutMs: number
  readonly maxArtifactBytes: number
  readonly extraction: ExtractionLimits
}

export type SourceTools = Pick<DeploymentTools, 'wires' | 'log' | 'signal' | 'now' | 'runner'>
