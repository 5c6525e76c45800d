import { HubError } from '../../hub/errors.ts'
import { howToRaise, type Sources } from './sources.ts'

/** A published version. */
export interface Published {
  readonly size: number
  readonly sha256: string
  readonly leftOut: readonly string[]
}

/** Builds a HubError 409 that says where to raise the version. */
export function alreadyPublished(sources: Pick<Sources, 'slug' | 'version' | 'versionFile'>): HubError {
  const sentence = `This hub has ${sources.slug} ${sources.version} with different files, and a published version never changes`
  return new HubError(409, `${sentence}: raise the version (${howToRaise(sources)}).`)
}
