/** What the bench's hub serves, and what it says of it. */
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
  /** Base64 of the raw 64 bytes, as all that follows. */
  readonly signature: string
  readonly signerPublicKey: string
  readonly dek: string
}
