/** The reaction of `npm run try` to signals. */
export interface Interruption {
  readonly hasCome: boolean
  /** Resolves at the first signal, or at once if one has come. */
  readonly wait: Promise<void>
  /**
   * After this call, SIGTERM or SIGHUP to our own process also sends SIGINT to the process `pid`, as the runner does
   * when a job is cancelled. Pass undefined once that process has ended.
   */
  alsoStops(pid: number | undefined): void
}

/**
 * After this call, SIGINT, SIGTERM and SIGHUP no longer end this process. This process ends by itself, after the
 * processes that it started have cleaned up.
 */
export function watchSignals(): Interruption {
  let hasCome = false
  let started: number | undefined
  const wait = new Promise<void>(resolve => {
    const note = (): void => {
      hasCome = true
      resolve()
    }
    // Ctrl-C in a terminal also reaches the processes that this one started.
    process.on('SIGINT', note)
    for (const signal of ['SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => {
        note()
        if (started !== undefined) interrupt(started)
      })
    }
  })
  return {
    get hasCome() {
      return hasCome
    },
    wait,
    alsoStops(pid) {
      started = pid
    },
  }
}

function interrupt(pid: number): void {
  try {
    process.kill(pid, 'SIGINT')
  } catch {
    // The process has ended.
  }
}
