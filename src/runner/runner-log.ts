import * as core from '@actions/core'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { Log } from '../core/log.ts'
import { monotonicMs } from '../core/monotonic.ts'
import { durationInWords } from '../core/quantities.ts'

const MAX_LINE_CHARS = 4000
/** A group that ends sooner is written at once, with what it did in its title. */
const TITLE_WITHIN_MS = 500
/** Of those that a summary may repeat. */
const MAX_NOTES = 100

/** A notice or warning of a run, as it was logged. */
export interface Note {
  readonly level: 'notice' | 'warning'
  readonly text: string
}

export interface RunnerLog extends Log {
  /** What was worth attention so far, in order; at most 100 of them. */
  readonly notes: readonly Note[]
  /** How long each group took that has ended, by its title, in milliseconds. */
  readonly took: ReadonlyMap<string, number>
}

/**
 * The workflow log; every line redacted and free of runner commands. A group's title says what it did and how long that
 * took; a group that takes longer than half a second, or whose lines must not be lost when the run is killed, is opened
 * with its bare title, shows its lines as they come, and is followed by a line with the rest. Each notice and warning
 * once: what stays wrong is found again by each part of a run that looks.
 */
export function createRunnerLog(redact: (text: string) => string): RunnerLog {
  const safe = (line: string): string => cleanForeignText(redact(line), MAX_LINE_CHARS)
  const annotated = new Set<string>()
  const notes: Note[] = []
  const took = new Map<string, number>()
  let open: OpenGroup | undefined
  const write = (line: () => void): void => (open === undefined ? line() : open.write(line))
  const once = (level: Note['level'], line: string): void => {
    if (annotated.has(line)) return
    annotated.add(line)
    const text = safe(line)
    if (notes.length < MAX_NOTES) notes.push({ level, text })
    write(() => (level === 'notice' ? core.notice(text) : core.warning(text)))
  }
  const end = (): void => {
    if (open !== undefined) took.set(open.title, open.end())
    open = undefined
  }
  return {
    notes,
    took,
    end,
    group(title, shown) {
      end()
      open = new OpenGroup(safe(title), safe)
      if (shown === 'at once') open.show()
    },
    did: what => void open?.did.push(what),
    info: line => write(() => core.info(safe(line))),
    notice: line => once('notice', line),
    warning: line => once('warning', line),
    error: line => write(() => core.error(safe(line))),
  }
}

/** A group whose lines wait for its title, but not for long. */
class OpenGroup {
  readonly did: string[] = []
  readonly title: string
  readonly #safe: (line: string) => string
  readonly #openedAt = monotonicMs()
  readonly #timer = setTimeout(() => this.show(), TITLE_WITHIN_MS).unref()
  #waiting: (() => void)[] | undefined = []

  constructor(title: string, safe: (line: string) => string) {
    this.title = title
    this.#safe = safe
  }

  write(line: () => void): void {
    if (this.#waiting === undefined) line()
    else this.#waiting.push(line)
  }

  /** Returns how long it was open, in milliseconds. */
  end(): number {
    const ms = monotonicMs() - this.#openedAt
    const story = [this.title, this.did.join('; ')].filter(text => text !== '').join(': ')
    const title = this.#safe(`${story} (${durationInWords(ms)})`)
    const isShown = this.#waiting === undefined
    if (!isShown) this.show(title)
    core.endGroup()
    if (isShown) core.info(title)
    return ms
  }

  /** Opens the group, by default with its bare title. */
  show(title = this.title): void {
    clearTimeout(this.#timer)
    core.startGroup(title)
    for (const line of this.#waiting ?? []) line()
    this.#waiting = undefined
  }
}
