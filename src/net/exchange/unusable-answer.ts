import { ArtifactError } from '../../core/errors.ts'

/** Says that the server answered with something else than it should have: ArtifactError `bad_response`. */
export function unusableAnswer(answer: { url: URL }, expected: string, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${answer.url.origin} answered with ${found} instead of ${expected}: check the URL, or report it to the hub.`,
  )
}
