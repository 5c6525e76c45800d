import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdirSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { parse } from 'yaml'

const REPOSITORY = resolve(import.meta.dirname, '..')

export interface ActionRun {
  /** The folder of the action.yml, relative to the repository. Default: the root. */
  action?: string
  phase?: 'main' | 'post'
  inputs: Readonly<Record<string, string>>
  /** See `makeWorkspace`. Several runs may share a workspace. */
  workspace: Workspace
  /** A checkout with its `dist/` built. Default: this repository. */
  repository?: string
  /** A command that runs another command, for example `strace -o log`; the action's command line is appended. */
  through?: readonly string[]
  /** The step's `env:`; undefined removes a variable of the runner. */
  env?: Readonly<Record<string, string | undefined>>
  /** For the post phase: the state that the main phase saved. */
  state?: Readonly<Record<string, string>>
  onStart?: (pid: number) => void
  /** Receives each piece of the log as it arrives. */
  onLog?: (text: string) => void
}

export interface ActionResult {
  exitCode: number | null
  signal: NodeJS.Signals | null
  log: string
  outputs: Record<string, string>
  state: Record<string, string>
  summary: string
}

export interface Workspace {
  /** `GITHUB_WORKSPACE`: the folder of the operator's checkout. */
  path: string
  /** `RUNNER_TEMP`. */
  temp: string
}

/** Creates a workspace in a new folder below `parent`. The caller removes it. */
export function makeWorkspace(parent: string = tmpdir()): Workspace {
  const root = mkdtempSync(join(parent, 'workspace-'))
  const workspace = { path: join(root, 'workspace'), temp: join(root, 'temp') }
  mkdirSync(workspace.path)
  mkdirSync(workspace.temp)
  return workspace
}

/**
 * Runs an action from `dist/` as the runner does. Runs the file that its action.yml names, with the inputs and their
 * defaults as `INPUT_*`, the runner's variables and its command files. From this process's environment, the action gets
 * only PATH, HOME and XDG_CACHE_HOME. Throws if the program cannot start.
 */
export async function runAction(run: ActionRun): Promise<ActionResult> {
  const folder = resolve(run.repository ?? REPOSITORY, run.action ?? '.')
  const definition = definitionIn(readFileSync(join(folder, 'action.yml'), 'utf8'))
  const files = commandFiles(run.workspace)
  const node = [process.execPath, join(folder, definition.runs[run.phase ?? 'main'])]
  const [program, ...args] = [...(run.through ?? []), ...node] as [string, ...string[]]
  const child = spawn(program, args, {
    cwd: run.workspace.path,
    env: { ...runnerEnvironment(run, files), ...inputEnvironment(definition.inputs, run.inputs), ...run.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  if (child.pid !== undefined) run.onStart?.(child.pid)
  return {
    ...(await readToEnd(child, run.onLog)),
    outputs: parseCommandFile(readFileSync(files.output, 'utf8')),
    state: parseCommandFile(readFileSync(files.state, 'utf8')),
    summary: readFileSync(files.summary, 'utf8'),
  }
}

/** Keeps each parsed action.yml: parsing takes several milliseconds. */
const definitions = new Map<string, ReturnType<typeof parse>>()

function definitionIn(text: string): ReturnType<typeof parse> {
  if (!definitions.has(text)) definitions.set(text, parse(text))
  return definitions.get(text)
}

async function readToEnd(
  child: ChildProcessByStdio<null, Readable, Readable>,
  onLog: ActionRun['onLog'],
): Promise<Pick<ActionResult, 'exitCode' | 'signal' | 'log'>> {
  let log = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      log += text
      onLog?.(text)
    })
  }
  const [exitCode, signal] = await once(child, 'close')
  return { exitCode, signal, log }
}

function commandFiles(workspace: Workspace): { output: string; state: string; summary: string } {
  const folder = mkdtempSync(join(workspace.temp, 'commands-'))
  const files = { output: join(folder, 'output'), state: join(folder, 'state'), summary: join(folder, 'summary') }
  for (const file of Object.values(files)) writeFileSync(file, '')
  // The owner of the workspace gets the files, so that an action that runs as this user can write to them.
  const { uid, gid } = statSync(workspace.temp)
  for (const path of [folder, ...Object.values(files)]) chownSync(path, uid, gid)
  return files
}

function runnerEnvironment(run: ActionRun, files: ReturnType<typeof commandFiles>): Record<string, string> {
  const state = Object.entries(run.state ?? {}).map(([name, value]) => [`STATE_${name}`, value] as const)
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: process.env['HOME'] ?? '',
    ...(process.env['XDG_CACHE_HOME'] && { XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] }),
    CI: 'true',
    GITHUB_ACTIONS: 'true',
    GITHUB_ACTOR: 'operator',
    GITHUB_JOB: 'deploy',
    GITHUB_OUTPUT: files.output,
    GITHUB_REPOSITORY: 'example/operations',
    GITHUB_RUN_ATTEMPT: '1',
    GITHUB_RUN_ID: '1001',
    GITHUB_SERVER_URL: 'https://code-host.example',
    GITHUB_STATE: files.state,
    GITHUB_STEP_SUMMARY: files.summary,
    GITHUB_WORKFLOW: 'Deploy',
    GITHUB_WORKSPACE: run.workspace.path,
    RUNNER_TEMP: run.workspace.temp,
    RUNNER_TRACKING_ID: 'github_example',
    ...Object.fromEntries(state),
  }
}

function inputEnvironment(
  definitions: Record<string, { default?: unknown } | null>,
  given: Readonly<Record<string, string>>,
): Record<string, string> {
  const names = new Set([...Object.keys(definitions), ...Object.keys(given)])
  return Object.fromEntries(
    [...names].map(name => [`INPUT_${name.toUpperCase()}`, given[name] ?? String(definitions[name]?.default ?? '')]),
  )
}

/** Parses the records of a command file: `name<<delimiter`, value, delimiter. The last record of a name counts. */
export function parseCommandFile(text: string): Record<string, string> {
  const records = text.matchAll(/^(.+?)<<(.+)\n([\s\S]*?)\n?\2\n/gm)
  return Object.fromEntries([...records].map(([, name, , value]) => [name as string, value as string]))
}
