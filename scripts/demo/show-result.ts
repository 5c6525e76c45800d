import { readFileSync } from 'node:fs'
import type { ActionResult } from '../../local/runner.ts'
import { drawTree } from '../terminal/file-tree.ts'
import { showBlock } from './screen.ts'

const MAIN_FIELDS = [
  'outcome',
  'state',
  'version',
  'version_source',
  'previous_version',
  'plugins',
  'signer_public_key',
  'error',
  'rollback',
  'reported',
]
const NAME_WIDTH = 18

/** Prints everything that a run produced: log, outputs, summary, local report, and the files on the host. */
export function showResult(result: ActionResult, projectRoot: string): void {
  const outputs = Object.entries(result.outputs).map(([name, value]) => `${name.padEnd(NAME_WIDTH)}${value}`)
  showBlock(`Log of the step (exit code ${result.exitCode})`, renderLog(result.log))
  showBlock('Outputs', outputs)
  showBlock('Job summary', renderSummary(result.summary))
  showBlock('Local report (main fields)', mainFields(result.outputs['report-path'] ?? ''))
  showBlock('Files on the host', drawTree(projectRoot))
}

/** The log as the runner shows it, with all groups open. */
function renderLog(log: string): string[] {
  let indent = ''
  return log
    .trimEnd()
    .split('\n')
    .flatMap(line => {
      const [, command, properties = '', message = ''] = /^::([a-z-]+)(?: (.*?))?::(.*)$/.exec(line) ?? []
      if (command === 'group' || command === 'endgroup') indent = command === 'group' ? '  ' : ''
      switch (command) {
        case undefined:
          return [`${indent}${line}`]
        case 'group':
          return [`▾ ${message}`]
        case 'notice':
        case 'warning':
        case 'error':
          return [`${indent}${annotationTitle(command, properties)}: ${message}`]
        default:
          return []
      }
    })
}

function annotationTitle(command: string, properties: string): string {
  const title = /title=([^,]*)/.exec(properties)?.[1]
  const kind = `${command.charAt(0).toUpperCase()}${command.slice(1)}`
  return title === undefined ? kind : `${kind} (${title})`
}

/** The summary's Markdown, with its escapes resolved as in a browser. */
function renderSummary(markdown: string): string[] {
  const text = markdown.replace(/&#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)))
  return text
    .replace(/<\/?code>/g, '`')
    .trimEnd()
    .split('\n')
}

function mainFields(path: string): string[] {
  const report: Record<string, unknown> = JSON.parse(readFileSync(path, 'utf8'))
  return MAIN_FIELDS.filter(name => name in report).map(
    name => `${name.padEnd(NAME_WIDTH)}${JSON.stringify(report[name])}`,
  )
}
