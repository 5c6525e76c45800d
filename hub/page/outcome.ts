/** The outcome of a deployment as a sign and in words, so that nothing depends on color. */
export interface ShownOutcome {
  readonly className: 'good' | 'bad' | 'back'
  readonly sign: string
  readonly words: string
}

export type ReportedStatus = 'success' | 'failed' | 'rolled_back'

export function shownOutcome(status: ReportedStatus): ShownOutcome {
  switch (status) {
    case 'success':
      return { className: 'good', sign: '✓', words: 'succeeded' }
    case 'failed':
      return { className: 'bad', sign: '✗', words: 'failed' }
    case 'rolled_back':
      return { className: 'back', sign: '↩\u{fe0e}', words: 'was rolled back' }
  }
}
