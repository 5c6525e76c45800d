import { readFileSync } from 'node:fs'
import type { ActionResult } from '../../local/runner.ts'
import { drawTree } from '../terminal/file-tree.ts'
import { viewLog } from '../terminal/log-view.ts'
import { markdownLines } from '../terminal/markdown.ts'
import { print, printBlock, styled, tableLines } from '../terminal/screen.ts'

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

/** Prints the results of a run: log, outputs, summary, main fields of the local report, and files on the host. */
export function showResult(result: ActionResult, projectRoot: string): void {
  showBlock(`Log of the step (exit code ${result.exitCode})`, viewLog(result.log, { isOpen: true }))
  showBlock('Outputs', tableLines(Object.entries(result.outputs)))
  showBlock('Job summary', markdownLines(result.summary))
  showBlock('Local report (main fields)', mainFields(result.outputs['report-path'] ?? ''))
  showBlock('Files on the host', drawTree(projectRoot))
}

function showBlock(title: string, lines: readonly string[]): void {
  print('', styled('bold', title))
  printBlock(lines)
}

function mainFields(path: string): string[] {
  const report: Record<string, unknown> = JSON.parse(readFileSync(path, 'utf8'))
  return tableLines(
    MAIN_FIELDS.filter(name => name in report).map(name => [name, JSON.stringify(report[name])] as const),
  )
}
