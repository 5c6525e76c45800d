import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionResult } from '../../local/runner.ts'
import { parseSettings } from '../../src/core/plan/settings.ts'
import { bytesInWords, countInWords, listNames } from '../../src/core/text.ts'
import { markdownLines } from '../terminal/markdown.ts'
import { drawTree, print, printBlock, printHeading, tableLines } from '../terminal/screen.ts'
import { workflowLines } from '../workflow.ts'
import { BROKEN_STEP, defaultPlanFile, type FileOptions, type OperatorFile } from './operator-files.ts'
import { FIRST_VERSION, howToRaise, type Sources } from './sources.ts'
import type { Published, TryStage } from './stage.ts'

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

interface Chosen {
  readonly break: boolean
  readonly root?: string | undefined
}

/** The advice after a step with this result. */
export function adviceAfter({ exitCode, outputs }: ActionResult, sources: Sources, chosen: Chosen): string {
  const { outcome, 'failed-step': failed } = outputs
  if (chosen.break && failed === BROKEN_STEP && outcome !== 'inconsistent') return adviceAfterBreak(sources, chosen)
  if (exitCode !== 0) return 'Correct what the error names, and run the command again.'
  if (chosen.root === undefined)
    return 'Add --root DIR to keep the hub and the host: you can then see an update and a rollback.'
  const raise = `change a file, raise the version (${howToRaise(sources)}) and run the command again`
  if (chosen.break) return `Nothing had to change, so the broken step was skipped. To see a rollback, ${raise}.`
  return `To see an update, ${raise}; to see a rollback, add --break.`
}

/** A broken project needs a new version, because a project contains its plan, and a published version never changes. */
function adviceAfterBreak(sources: Sources, { root }: Chosen): string {
  if (sources.kind !== 'project' || root === undefined)
    return 'Run the command without --break to install your version.'
  return `The broken step is sealed into ${sources.version}. Run the command without --break and with ${howToRaise(sources)} to install your project.`
}

/** The command-line options that the next command repeats. */
export interface RepeatedOptions {
  readonly from?: string | undefined
  readonly kind?: string | undefined
  readonly slug?: string | undefined
  readonly 'plugins-dirname'?: string | undefined
  readonly plan?: string | undefined
  readonly 'host-config'?: string | undefined
  readonly setting: readonly string[]
  readonly root?: string | undefined
}

/**
 * Returns the command that deploys the next version of the sources. If --root was not given, the command deploys the
 * same version with --root instead. The values of settings may be secret, so only their names appear.
 */
export function nextCommand(sources: Sources, given: RepeatedOptions): string {
  const repeated = Object.entries({
    from: given.from ?? sources.folder,
    kind: given.kind,
    slug: given.slug,
    'plugins-dirname': given['plugins-dirname'],
    plan: given.plan,
    'host-config': given['host-config'],
    root: given.root ?? 'DIR',
  })
  return [
    'npm run try --',
    ...repeated.flatMap(([name, value]) => (value === undefined ? [] : [`--${name} ${quoted(value)}`])),
    ...given.setting.map(setting => `--setting ${quoted(`${setting.split('=', 1)[0]}=…`)}`),
    ...versionOption(sources, given),
  ].join(' ')
}

/** Leaves out the option for a version that a file names or that is the default. */
function versionOption(sources: Sources, { root }: RepeatedOptions): string[] {
  if (sources.versionFile !== undefined) return []
  if (root !== undefined) return [howToRaise(sources)]
  const isDefault = sources.kind !== 'plugin' && sources.version === FIRST_VERSION
  return isDefault ? [] : [`--version ${sources.version}`]
}

/** Quotes a text so that a shell reads it back unchanged. */
function quoted(text: string): string {
  return /^[\w@%+=:,./…-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
