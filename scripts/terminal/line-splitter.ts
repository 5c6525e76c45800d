/** Splits text that arrives in pieces into its lines. */
export interface LineSplitter {
  add(text: string): void
  /** Call this at the end of the text: it shows a last line that has no line break. */
  end(): void
}

export function createLineSplitter(show: (lines: readonly string[]) => void): LineSplitter {
  let rest = ''
  return {
    add(text) {
      const lines = `${rest}${text}`.split('\n')
      rest = lines.pop() ?? ''
      if (lines.length > 0) show(lines)
    },
    end() {
      if (rest !== '') show([rest])
      rest = ''
    },
  }
}
