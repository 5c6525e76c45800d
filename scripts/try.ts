import { existsSync, realpathSync } from 'node:fs'
import { basename, dirname, join, resolve, sep } from 'node:path'
import { sayingStillRunning } from '../hub/commands/command.ts'
import { UsageError } from '../hub/errors.ts'
import type { ActionResult } from '../local/runner.ts'
import { runProgram } from './program.ts'
import { createLineSplitter, createLogView } from './terminal/log-view.ts'
import { print, printBlock, printHeading, styled, symbol } from './terminal/screen.ts'
import { type FileOptions, type OperatorFile, pathFromCaller, readOperatorFiles } from './try/operator-files.ts'
import {
  adviceAfter,
  nextCommand,
  type RepeatedOptions,
  showFiles,
  showPublished,
  showResult,
  showWorkflow,
} from './try/show.ts'
import { readSources, type Sources } from './try/sources.ts'
import { openTryStage, type TryStage } from './try/stage.ts'

interface Values extends FileOptions, RepeatedOptions {
  readonly keep: boolean
  readonly verbose: boolean
}

/** The sources on a stage, with the command-line options. */
interface Trial {
  readonly sources: Sources
  readonly stage: TryStage
  readonly files: readonly OperatorFile[]
  readonly values: Values
  readonly interruption: Interruption
}

await runProgram({
  name: 'npm run try',
  purpose: `Deploys your plugin, service or project as a runner would, from a hub to a host. Both are in a temporary folder on
this machine, or in the folder of --root. Outside that folder, the only changes are those to the action's cache of
compiled code (by default ~/.cache/hub-deploy) and those that the commands of your host config make.`,
  argument: '[FOLDER]',
  options: {
    from: { type: 'string', value: 'FOLDER', help: 'your plugin, service or project, for example examples/plugin' },
    kind: {
      type: 'string',
      value: 'KIND',
      help: 'plugin, service or project (default: plugin if the folder has a plugin.yaml,\nproject if it has deployment/install.yaml, service if it has a program)',
    },
    slug: {
      type: 'string',
      value: 'SLUG',
      help: "its name on the hub (default: the name in plugin.yaml, else that of the folder);\na project's id is in its plan",
    },
    version: {
      type: 'string',
      value: 'VERSION',
      help: 'its version (default: that in plugin.yaml; 1.0.0 for a service or project)',
    },
    'plugins-dirname': {
      type: 'string',
      value: 'NAME',
      help: 'the folder of the plugins of a project (default: plugins)',
    },
    plan: {
      type: 'string',
      value: 'FILE',
      help: 'your install plan (default: none, as on a real host); a project has its own',
    },
    'host-config': { type: 'string', value: 'FILE', help: 'your host config; its commands run on this machine' },
    setting: {
      type: 'string',
      multiple: true,
      default: [] as string[],
      value: 'NAME=VALUE',
      help: "a setting for the plan's write_env step; repeat it for more",
    },
    root: {
      type: 'string',
      value: 'DIR',
      help: 'keep hub and host in DIR, and continue with them next time:\nafter you raise the version, you see an update, or with --break a rollback',
    },
    break: { type: 'boolean', default: false, help: 'make a step fail once the files are in place, to see a rollback' },
    keep: { type: 'boolean', default: false, help: 'keep the hub running until a signal, as in a terminal' },
    verbose: { type: 'boolean', default: false, help: 'open the groups of the log' },
  },
  notes: `In a terminal, the hub and its page run until Ctrl-C. Otherwise, the hub stops at once, except with --keep. After
that, the folder of the hub and the host is removed, except with --root. The exit code is 0 if the deployment succeeded,
1 if it did not, and 2 for a wrong command line.`,
  async run(values, argument) {
    const sources = readSources(chooseFolder(values.from, argument), values)
    const files = readOperatorFiles(sources, values)
    const root = values.root === undefined ? undefined : pathFromCaller(values.root)
    if (root !== undefined) requireApart(sources, root)
    const interruption = watchSignals()
    const stage = await openTryStage(root)
    try {
      await trySources({ sources, stage, files, values, interruption })
    } finally {
      await stage.close()
    }
  },
})

async function trySources(trial: Trial): Promise<void> {
  const { sources, stage, files, values, interruption } = trial
  const published = await sayingStillRunning('Publishing', () => stage.publish(sources, values.break))
  showPublished(sources, published, values.root && stage.folder)
  showFiles(files, values)
  if (interruption.hasCome) {
    process.exitCode = 1
    return print('', `A signal came before the deployment, so nothing was deployed. Now ${fate(trial)}.`)
  }
  const result = await deploy(trial)
  process.exitCode = result.exitCode === 0 ? 0 : 1
  showResult(result, stage, sources)
  if (interruption.hasCome) return print('', `A signal came, so the trial ends here. Now ${fate(trial)}.`)
  if (result.exitCode === 0) showWorkflow(sources, files, values.setting)
  await showNext(trial, result)
}

async function deploy({ sources, stage, files, values, interruption }: Trial): Promise<ActionResult> {
  printHeading('Log of the step')
  const view = createLogView({ isOpen: values.verbose })
  const lines = createLineSplitter(each => printBlock(each.flatMap(line => view(line) ?? [])))
  const result = await stage.deploy(sources, {
    files,
    settings: values.setting,
    onStart: pid => interruption.alsoStops(pid),
    onLog: text => lines.add(text),
  })
  interruption.alsoStops(undefined)
  lines.end()
  const sign = result.exitCode === 0 ? symbol('good') : symbol('bad')
  const end = result.exitCode === null ? `was ended by ${result.signal}` : `ended with the exit code ${result.exitCode}`
  print(`${sign}The step ${end}.`)
  return result
}

async function showNext(trial: Trial, result: ActionResult): Promise<void> {
  const { stage, values, interruption } = trial
  printHeading('What next')
  print(adviceAfter(result, trial.sources, values))
  if (result.exitCode === 0) print(`  ${nextCommand(trial.sources, values)}`)
  if (!process.stdin.isTTY && !values.keep) return print(`Now ${fate(trial)}.`)
  print(`The fleet page is at ${styled('bold', `${stage.hubUrl}/`)}`)
  print(`It stays until ${process.stdin.isTTY ? 'you press Ctrl-C' : 'a signal comes'}. Then ${fate(trial)}.`)
  await interruption.wait
}

/** Returns what happens to the hub and the folder at the end, in words. */
function fate({ stage, values }: Trial): string {
  return `the hub stops, and ${stage.folder} is ${values.root === undefined ? 'removed' : 'kept'}`
}

function chooseFolder(option: string | undefined, argument: string | undefined): string {
  const folder = option ?? argument
  if (folder === undefined)
    throw new UsageError(
      'Name the folder of your plugin, service or project, for example: npm run try -- --from examples/plugin',
    )
  if (option !== undefined && argument !== undefined)
    throw new UsageError(`Name one folder, not both ${option} and ${argument}.`)
  return pathFromCaller(folder)
}

/**
 * Throws UsageError if the folders of the sources and of --root are the same, or if one contains the other. The secrets
 * in the folder of --root could then be published, or the sources could be mixed with the files of the hub and the
 * host. Resolves symlinks first.
 */
function requireApart({ kind, folder }: Sources, named: string): void {
  const [from, root] = [realPathOf(folder), realPathOf(named)]
  if (!isWithin(from, root) && !isWithin(root, from)) return
  throw new UsageError(
    `The folder of --root, ${root}, and that of your ${kind}, ${from}, must not contain each other, so that nothing of the hub or the host is published as your ${kind}: name another folder with --root.`,
  )
}

/** The real path of a folder that may not exist yet. */
function realPathOf(path: string): string {
  const absolute = resolve(path)
  if (existsSync(absolute)) return realpathSync(absolute)
  return join(realPathOf(dirname(absolute)), basename(absolute))
}

function isWithin(path: string, folder: string): boolean {
  return join(path, sep).startsWith(join(folder, sep))
}

/** The reaction of `npm run try` to signals. */
interface Interruption {
  readonly hasCome: boolean
  /** Resolves at the first signal, or at once if one has come. */
  readonly wait: Promise<void>
  /**
   * After this call, SIGTERM or SIGHUP to our own process also sends SIGINT to the process `pid`, as the runner does
   * when a job is cancelled. Pass undefined once that process has ended.
   */
  alsoStops(pid: number | undefined): void
}

/**
 * After this call, SIGINT, SIGTERM and SIGHUP no longer end this process. This process ends by itself, after the
 * processes that it started have cleaned up.
 */
function watchSignals(): Interruption {
  let hasCome = false
  let started: number | undefined
  const wait = new Promise<void>(resolve => {
    const note = (): void => {
      hasCome = true
      resolve()
    }
    // Ctrl-C in a terminal also reaches the processes that this one started.
    process.on('SIGINT', note)
    for (const signal of ['SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => {
        note()
        if (started !== undefined) interrupt(started)
      })
    }
  })
  return {
    get hasCome() {
      return hasCome
    },
    wait,
    alsoStops(pid) {
      started = pid
    },
  }
}

function interrupt(pid: number): void {
  try {
    process.kill(pid, 'SIGINT')
  } catch {
    // The process has ended.
  }
}
