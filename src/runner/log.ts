import * as core from '@actions/core'
import { type Log, monotonicMs } from '../core/log.ts'
import { cleanLogLine, durationInWords } from '../core/text.ts'

const MAX_LINE_CHARS = 4000
/** A group that ends sooner than this is written in one go, and its title says what the group did. */
const TITLE_WITHIN_MS = 500
const MAX_NOTES = 100
/** A shown group that writes no line for this long says that it is still running; after a minute, once a minute. */
const SILENT_MS = 10_000
const MINUTE_MS = 60_000
/** The end of such a line. */
export const STILL_RUNNING = /: still running after \d[^:]*$/

/** A notice or warning of a run, as it was logged. */
export interface Note {
  readonly level: 'notice' | 'warning'
  readonly text: string
}

export interface RunnerLog extends Log {
  /** The notices and warnings so far, in order; at most 100. */
  readonly notes: readonly Note[]
  /** The duration of each ended group in milliseconds, by its title. */
  readonly took: ReadonlyMap<string, number>
}

/**
 * The workflow log. Every line is redacted and free of runner commands. A group's title says what the group did and how
 * long it took. A group that takes longer than half a second, or whose lines must survive a kill, opens with its bare
 * title and shows its lines as they come, or that it is still running. Its full title then follows in a line after the
 * group. Each notice and warning appears once, even if several parts of a run find the same problem.
 */
export function createRunnerLog(redact: (text: string) => string): RunnerLog {
  const safe = (line: string): string => cleanLogLine(redact(line), MAX_LINE_CHARS)
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
    did: result => void open?.did.push(result),
    info: line => write(() => core.info(safe(line))),
    notice: line => once('notice', line),
    warning: line => once('warning', line),
    error: line => write(() => core.error(safe(line))),
  }
}

/** A group that holds its lines back until its full title is known, but at most for `TITLE_WITHIN_MS`. */
class OpenGroup {
  readonly did: string[] = []
  readonly title: string
  readonly #safe: (line: string) => string
  readonly #openedAt = monotonicMs()
  readonly #timer = setTimeout(() => this.show(), TITLE_WITHIN_MS).unref()
  #waiting: (() => void)[] | undefined = []
  #silence: NodeJS.Timeout | undefined

  constructor(title: string, safe: (line: string) => string) {
    this.title = title
    this.#safe = safe
  }

  write(line: () => void): void {
    if (this.#waiting === undefined) {
      line()
      this.#awaitSilence()
    } else this.#waiting.push(line)
  }

  /** Ends the group. Returns how long it was open, in milliseconds. */
  end(): number {
    const ms = monotonicMs() - this.#openedAt
    const story = [this.title, this.did.join('; ')].filter(text => text !== '').join(': ')
    const title = this.#safe(`${story} (${durationInWords(ms)})`)
    const isShown = this.#waiting === undefined
    if (!isShown) this.show(title)
    clearTimeout(this.#silence)
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
    this.#awaitSilence()
  }

  #awaitSilence(): void {
    clearTimeout(this.#silence)
    const passed = monotonicMs() - this.#openedAt
    this.#silence = setTimeout(
      () =>
        this.write(() =>
          core.info(`${this.title}: still running after ${durationInWords(monotonicMs() - this.#openedAt)}`),
        ),
      passed < MINUTE_MS ? SILENT_MS : MINUTE_MS,
    ).unref()
  }
}
