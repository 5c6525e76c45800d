import { createRedactor } from '../../src/core/text.ts'
import { STILL_RUNNING } from '../../src/runner/log.ts'
import { styled, symbol } from './screen.ts'

const COMMAND = /^\s*::([a-z-]+)(?: (.*?))?::(.*)$/

interface LogViewOptions {
  /** True to show the lines in groups too, as the runner does after a click. */
  readonly isOpen: boolean
}

/**
 * Creates a function to call with each line of a log, in order. It returns the line as the runner's page shows it: a
 * group by its title and the lines that say that it is still running, a message with its title, and `***` in place of
 * everything that the log has masked so far.
 * Returns undefined for a line that the page does not show, such as a command that only the runner reads.
 */
export function createLogView({ isOpen }: LogViewOptions): (line: string) => string | undefined {
  const masks: string[] = []
  let inGroup = false
  return line => {
    const [, command, properties = '', data = ''] = COMMAND.exec(line) ?? []
    const message = decodeData(data)
    switch (command) {
      case undefined:
        if (!inGroup) return masked(line, masks)
        return isOpen || STILL_RUNNING.test(line) ? `  ${masked(line, masks)}` : undefined
      case 'group':
        inGroup = true
        return `${symbol(isOpen ? 'open' : 'closed')}${masked(message, masks)}`
      case 'endgroup':
        inGroup = false
        return undefined
      case 'add-mask':
        masks.push(message)
        return undefined
      case 'notice':
      case 'warning':
      case 'error':
        return `${inGroup ? '  ' : ''}${annotation(command, properties)}${masked(message, masks)}`
      default:
        return undefined
    }
  }
}

/** Views a whole log as `createLogView` does. */
export function viewLog(log: string, options: LogViewOptions): string[] {
  const view = createLogView(options)
  return log
    .trimEnd()
    .split('\n')
    .flatMap(line => view(line) ?? [])
}

function masked(text: string, masks: readonly string[]): string {
  return createRedactor(masks)(text)
}

const COLORS = { notice: 'cyan', warning: 'yellow', error: 'red' } as const

function annotation(level: keyof typeof COLORS, properties: string): string {
  const title = /title=([^,]*)/.exec(properties)?.[1]
  const name = `${level.charAt(0).toUpperCase()}${level.slice(1)}`
  return styled(COLORS[level], `${title === undefined ? name : `${name} (${decodeData(title)})`}: `)
}

/** Undoes the runner's escapes. A line break becomes a space: it must not start a new line. */
function decodeData(text: string): string {
  return text
    .replace(/%0D|%0A/gi, ' ')
    .replace(/%3A/gi, ':')
    .replace(/%2C/gi, ',')
    .replace(/%25/g, '%')
}

/** Splits text that arrives in pieces into its lines. */
interface LineSplitter {
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
