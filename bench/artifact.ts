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
