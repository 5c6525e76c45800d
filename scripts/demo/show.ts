import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import type { ActionResult } from '../../local/runner.ts'
import { layoutOf } from '../../src/install/host/layout.ts'
import { readInstalled } from '../../src/install/host/record.ts'
import { viewLog } from '../terminal/log-view.ts'
import { markdownLines } from '../terminal/markdown.ts'
import { drawTree, modeAndSize, print, printBlock, styled, symbol, tableLines, wrapped } from '../terminal/screen.ts'
import type { Deployment } from './deployments.ts'

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

const EMOJI = /^\p{Extended_Pictographic}\ufe0f?\s*/u
const DIGEST = /\b([\da-f]{12})[\da-f]{52}\b/g
/** Leaves room in 100 columns for the name of the field, and for the mark of a shortened text. */
const TEXT_WIDTH = 90

/** Prints the story, the result of the step, and the versions on the host. */
export function showBriefly(deployment: Deployment, { result, root }: { result: ActionResult; root: string }): void {
  const { title, story, verified } = deployment
  const isSuccess = result.exitCode === 0
  const sign = styled(isSuccess ? 'green' : 'red', symbol(isSuccess ? 'good' : 'bad'))
  const [headline = ''] = markdownLines(result.summary)
  const error = result.outputs['error-code']
  const runs = listInstalled(root).map(({ id, version }) => `${id} ${version}`)
  print('', `${styled('bold', `${title}.`)} ${story}`)
  printField('step', `${sign}${stripVTControlCharacters(headline).replace(EMOJI, '')}`)
  if (error) printField('why', `${error}: ${messageIn(result.log)}`)
  printField('host', `runs ${runs.toSorted().join(', ')}. ${verified}`)
}

/** The message of the error annotation. */
function messageIn(log: string): string {
  const error = viewLog(log, { isOpen: false }).find(line => line.includes('Error ('))
  return error?.replace(/^.*?\): /, '') ?? ''
}

/** Prints at most two lines: a message may have several sentences, and the log has all of them. */
function printField(name: string, text: string): void {
  const lines = wrapped(text.replace(DIGEST, '$1…'), TEXT_WIDTH)
  const shown = lines.length > 2 ? [lines[0], `${lines[1]} …`] : lines
  print(...shown.map((line, index) => `  ${(index === 0 ? name : '').padEnd(6)}${line}`))
}

interface InstalledPart {
  readonly id: string
  readonly version: string
}

/** The installed parts, according to the record that each deployment leaves on the host. */
export function listInstalled(projectRoot: string): InstalledPart[] {
  return readInstalled(layoutOf(projectRoot)).map(({ id, version }) => ({ id, version: version ?? 'unknown' }))
}

/** Returns the path, mode, size and SHA-256 of each file below the folders that exist. Equal texts mean equal files. */
export function fingerprint(folders: readonly string[]): string {
  return folders
    .filter(folder => existsSync(folder))
    .flatMap(listFiles)
    .map(fileLine)
    .join('\n')
}

function listFiles(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter(entry => !entry.isDirectory())
    .map(entry => join(entry.parentPath, entry.name))
    .toSorted()
}

function fileLine(path: string): string {
  return `${path} ${modeAndSize(path)} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`
}
