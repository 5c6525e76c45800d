import { ArtifactError } from '../../core/errors.ts'

/** Builds ArtifactError `bad_response` for a server whose answer is not the expected one. */
export function unusableAnswer(answer: { url: URL }, expected: string, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${answer.url.origin} answered with ${found} instead of ${expected}: check the URL, or report it to the hub.`,
  )
}
