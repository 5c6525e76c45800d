import { ArtifactError } from '../../core/errors.ts'

/** Builds ArtifactError `bad_response` for a server that answered with anything but the expected. */
export function unusableAnswer(answer: { url: URL }, expected: string, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${answer.url.origin} answered with ${found} instead of ${expected}: check the URL, or report it to the hub.`,
  )
}
