import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parse } from 'yaml'

const REPOSITORY = resolve(import.meta.dirname, '..')

export interface ActionRun {
  /** The folder of the action.yml, below the repository. Default: the root. */
  action?: string
  phase?: 'main' | 'post'
  inputs: Readonly<Record<string, string>>
  /** A folder of the run's own; see `makeWorkspace`. */
  workspace: Workspace
  /** Where the built repository lies: its `dist/` and each `action.yml`. Default: this one. */
  repository?: string
  /** A command that gets the action's own command line appended and runs it, say `strace -o log`. */
  through?: readonly string[]
  /** The step's `env:`; undefined takes a variable of the runner's away. */
  env?: Readonly<Record<string, string | undefined>>
  /** What the main phase saved, for the post phase. */
  state?: Readonly<Record<string, string>>
  onStart?: (pid: number) => void
  /** Called with each piece of the log as it comes. */
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
  /** `GITHUB_WORKSPACE`: where the repository would be checked out. */
  path: string
  /** `RUNNER_TEMP`. */
  temp: string
}

/** A temporary workspace below `parent`. */
export function makeWorkspace(parent: string = tmpdir()): Workspace {
  const root = mkdtempSync(join(parent, 'workspace-'))
  const workspace = { path: join(root, 'workspace'), temp: join(root, 'temp') }
  mkdirSync(workspace.path)
  mkdirSync(workspace.temp)
  return workspace
}

/**
 * Runs an action of this repository as the runner does: the file that its action.yml names, from `dist/`, with the
 * inputs and their defaults as `INPUT_*`, the runner's command files, and nothing else of this process's environment but PATH and HOME.
 */
export async function runAction(run: ActionRun): Promise<ActionResult> {
  const folder = resolve(run.repository ?? REPOSITORY, run.action ?? '.')
  const definition = parse(readFileSync(join(folder, 'action.yml'), 'utf8'))
  const files = commandFiles(run.workspace)
  const node = [process.execPath, join(folder, definition.runs[run.phase ?? 'main'])]
  const [program, ...args] = [...(run.through ?? []), ...node] as [string, ...string[]]
  const child = spawn(program, args, {
    cwd: run.workspace.path,
    env: { ...runnerEnvironment(run, files), ...inputEnvironment(definition.inputs, run.inputs), ...run.env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  if (child.pid !== undefined) run.onStart?.(child.pid)
  let log = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      log += text
      run.onLog?.(text)
    })
  }
  const [exitCode, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((done, fail) => {
    child.once('error', fail)
    child.once('close', (code, by) => done([code, by]))
  })
  return {
    exitCode,
    signal,
    log,
    outputs: parseCommandFile(readFileSync(files.output, 'utf8')),
    state: parseCommandFile(readFileSync(files.state, 'utf8')),
    summary: readFileSync(files.summary, 'utf8'),
  }
}

function commandFiles(workspace: Workspace): { output: string; state: string; summary: string } {
  const folder = mkdtempSync(join(workspace.temp, 'commands-'))
  const files = { output: join(folder, 'output'), state: join(folder, 'state'), summary: join(folder, 'summary') }
  for (const file of Object.values(files)) writeFileSync(file, '')
  return files
}

function runnerEnvironment(run: ActionRun, files: ReturnType<typeof commandFiles>): Record<string, string> {
  const state = Object.entries(run.state ?? {}).map(([name, value]) => [`STATE_${name}`, value] as const)
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: process.env['HOME'] ?? '',
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

/** The records `name<<delimiter`, value, delimiter of a runner command file; the last of a name holds. */
function parseCommandFile(text: string): Record<string, string> {
  const records = text.matchAll(/^(.+?)<<(.+)\n([\s\S]*?)\n?\2\n/gm)
  return Object.fromEntries([...records].map(([, name, , value]) => [name as string, value as string]))
}
