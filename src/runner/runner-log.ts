import { performance } from 'node:perf_hooks'
import * as core from '@actions/core'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { Log } from '../core/log.ts'

const MAX_LINE_CHARS = 4000

export interface RunnerLog extends Log {
  /** Closes the open group, with its duration. */
  end(): void
}

/**
 * The workflow log: one group a state with its duration; every line redacted and free of runner commands. Each notice and
 * warning once: what stays wrong is found again by each part of a run that looks.
 */
export function createRunnerLog(redact: (text: string) => string): RunnerLog {
  const safe = (line: string): string => cleanForeignText(redact(line), MAX_LINE_CHARS)
  const annotated = new Set<string>()
  const once = (annotate: (line: string) => void, line: string): void => {
    if (!annotated.has(line)) annotate(safe(line))
    annotated.add(line)
  }
  let openedAt: number | undefined
  const end = (): void => {
    if (openedAt === undefined) return
    core.info(`(${Math.round(performance.now() - openedAt)} ms)`)
    core.endGroup()
    openedAt = undefined
  }
  return {
    end,
    group(title) {
      end()
      core.startGroup(safe(title))
      openedAt = performance.now()
    },
    info: line => core.info(safe(line)),
    notice: line => once(core.notice, line),
    warning: line => once(core.warning, line),
    error: line => core.error(safe(line)),
  }
}
