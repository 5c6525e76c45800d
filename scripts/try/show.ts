import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionResult } from '../../local/runner.ts'
import { listNames } from '../../src/core/foreign-text.ts'
import { parseSettings } from '../../src/core/plan/settings.ts'
import { bytesInWords, countInWords } from '../../src/core/quantities.ts'
import { drawTree } from '../terminal/file-tree.ts'
import { markdownLines } from '../terminal/markdown.ts'
import { print, printBlock, printHeading, tableLines } from '../terminal/screen.ts'
import { defaultPlanFile, type FileOptions, type OperatorFile } from './operator-files.ts'
import type { Published } from './published.ts'
import type { Sources } from './sources.ts'
import type { TryStage } from './stage.ts'
import { workflowLines } from './workflow.ts'

const MAX_FILES = 20

/** Shows what was published. `root` is the folder of --root. */
export function showPublished(sources: Sources, { size, sha256, leftOut }: Published, root: string | undefined): void {
  const { kind, slug, version, folder } = sources
  printHeading(`${kind} ${slug} ${version}`)
  const hub = root === undefined ? 'a temporary hub' : `the hub in ${root}`
  const done = kind === 'project' ? 'Sealed and published' : 'Signed and published'
  print(`${done} ${folder} on ${hub}: ${bytesInWords(size)}, SHA-256 ${sha256.slice(0, 12)}….`)
  if (sources.kind === 'plugin' && sources.ownSlug !== undefined && sources.ownSlug !== slug)
    print(`Note: --slug is ${slug}, but the name in plugin.yaml gives the slug ${sources.ownSlug}.`)
  if (leftOut.length > 0) print(`Left out, because these are never published: ${listNames(leftOut)}.`)
}

/** Names the operator's files behind the paths in the messages of the step. */
export function showFiles(files: readonly OperatorFile[], { break: isBroken }: FileOptions): void {
  for (const { path, copyOf } of files) if (copyOf !== undefined) print(`In messages, ${path} is your file ${copyOf}.`)
  if (isBroken) print('--break adds the provision step `broken`, which runs `false`, after the files are in place.')
}

/** Shows the result of the step: its summary, its outputs and the files. */
export function showResult({ summary, outputs }: ActionResult, { root }: TryStage, sources: Sources): void {
  printHeading('Job summary')
  printBlock(markdownLines(summary))
  printHeading('Outputs')
  printBlock(tableLines(Object.entries(outputs).filter(([, value]) => value !== '')))
  printHeading('Files on the host')
  print(`The project root of the host is ${root}. Its .hub-deploy/ has the records, reports and snapshots.`)
  const installed = outputs['install-path'] ?? ''
  const isOfPart = (path: string): boolean => `${path}/`.startsWith(`${installed}/`)
  const files = directoriesOfParts(sources)
    .filter(name => existsSync(join(root, name)))
    .flatMap(name => [`${name}/`, ...drawTree(join(root, name), isOfPart)])
  const more = files.length - MAX_FILES
  printBlock(files.length === 0 ? ['(nothing is installed)'] : files.slice(0, MAX_FILES))
  if (more > 0) print(`… and ${countInWords(more, 'more line')}`)
}

/** The directories of the host's parts. The action's own records are next to them. */
function directoriesOfParts(sources: Sources): string[] {
  const own = sources.kind === 'project' ? [sources.pluginsDirname] : []
  return [...new Set(['plugins', ...own, 'extensions'])]
}

/** Shows the workflow. `given` has the lines `NAME=value` that the action has accepted; their values are not shown. */
export function showWorkflow(sources: Sources, files: readonly OperatorFile[], given: readonly string[]): void {
  const { settings } = parseSettings(given.join('\n'))
  printHeading('The same on a real host: .github/workflows/deploy.yml')
  print(...workflowLines(sources, files, [...settings.keys()]))
  for (const file of files) showFile(file.path, file)
  if (files.length > 0 || sources.kind === 'project') return
  const plan = defaultPlanFile(sources)
  showFile(`Optional: ${plan.path}, to add steps (install-plan: ${plan.path})`, plan)
}

function showFile(title: string, { text }: OperatorFile): void {
  printHeading(title)
  print(...text.trimEnd().split('\n'))
}
