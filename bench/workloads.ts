/** The content of a deployment: its number of files and their total bytes. */
export interface Workload {
  readonly name: string
  readonly files: number
  readonly bytes: number
  /** The number of plugins that the files are divided among; default 1. */
  readonly parts?: number
}

export interface RacedWorkload extends Workload {
  readonly format: Format
  readonly rounds: number
  readonly quickRounds?: number
}

/** `zip` is the marketplace's artifact, `sealed` the encrypted one of the proposed contract. */
export type Format = 'zip' | 'sealed'

const LARGE = { files: 25_000, bytes: 400_000_000 }

/** The races of `npm run bench`, in order; `--quick` runs those with `quickRounds`. */
export const RACES: readonly RacedWorkload[] = [
  { name: 'S', format: 'zip', files: 60, bytes: 400_000, rounds: 15, quickRounds: 5 },
  { name: 'M', format: 'zip', files: 3_000, bytes: 30_000_000, rounds: 9, quickRounds: 3 },
  { name: 'L', format: 'zip', ...LARGE, rounds: 5 },
  { name: 'X', format: 'zip', files: 1, bytes: 1_000_000_000, rounds: 3 },
  { name: 'sealed-L', format: 'sealed', ...LARGE, rounds: 5 },
]

/** The workload of `npm run bench -- --project`: the content of L in a project of many parts. */
export const PROJECT = { name: 'project', ...LARGE, parts: 40 } as const satisfies Workload

/** The plugin that the bench deploys, and credentials that are valid only on its own hub. */
export const SLUG = 'bench-plugin'
export const API_KEY = 'bench-api-key'
export const SIGNING_SECRET = 'bench-signing-secret'
export const DEPLOYMENT_CREDENTIAL = 'bench-deployment-credential'

/** The first install deploys version 1, the update version 2. */
export type Version = 1 | 2

export function versionName(version: Version): string {
  return `${version}.0.0`
}

/** An artifact that the bench's hub serves, with the values that the hub's answers about it contain. */
export type Artifact = ZipArtifact | SealedArtifact

export interface ZipArtifact {
  readonly format: 'zip'
  readonly path: string
  readonly size: number
  readonly version: string
  /** The value of `X-Signature`. */
  readonly signature: string
}

export interface SealedArtifact {
  readonly format: 'sealed'
  readonly path: string
  readonly size: number
  readonly version: string
  /** The raw 64 bytes in base64. The fields below are base64 too. */
  readonly signature: string
  readonly signerPublicKey: string
  readonly dek: string
}
