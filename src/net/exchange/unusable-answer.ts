import { ArtifactError } from '../../core/errors.ts'

/** Builds ArtifactError `bad_response` for an answer that is not of the expected form. */
export function unusableAnswer(answer: { server: string }, expected: string, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${answer.server} answered with ${found} instead of ${expected}: check the URL, or report this to the hub's operator.`,
  )
}
