import { appendFileSync, statSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import * as core from '@actions/core'
import type { Log } from '../core/log.ts'
import { cleanForeignText } from '../core/text.ts'
import type { WorkflowRun } from '../install/journal/facts.ts'
import type { RunnerFacts } from '../install/transaction/record.ts'

/** Outputs that contain no foreign text, or that are built from texts that were redacted one by one. */
const OWN_OUTPUTS: ReadonlySet<string> = new Set([
  'outcome',
  'changed',
  'reported',
  'state',
  'error-code',
  'deployment-id',
  'duration-ms',
  'plugins',
  'drift',
  'pending-recovery',
  'in-sync',
  'hosts',
  'versions',
  'outdated',
  'verified',
  'artifact-size',
])

/** The files that a step writes for the runner. A failed write causes a warning and does not change the outcome. */
export interface RunnerFiles {
  /** Writes the outputs that are new or have changed. */
  setOutputs(outputs: Readonly<Record<string, string>>): void
  /** Saves a value for the post step. */
  saveState(name: string, value: string): void
  /** Sets this step's Markdown in the job summary, if the runner has one. Replaces the earlier Markdown of the step. */
  setSummary(markdown: string): void
}

export function createRunnerFiles(log: Log, redact: (text: string) => string): RunnerFiles {
  const warn = (subject: string, error: unknown): void =>
    log.warning(`The ${subject} could not be written: ${error instanceof Error ? error.message : String(error)}`)
  const written = new Map<string, string>()
  let summaryStart: number | undefined
  return {
    setOutputs(outputs) {
      try {
        for (const [name, value] of Object.entries(outputs)) {
          if (written.get(name) === value) continue
          core.setOutput(name, OWN_OUTPUTS.has(name) ? value : redact(value))
          written.set(name, value)
        }
      } catch (error) {
        warn('outputs', error)
      }
    },
    saveState(name, value) {
      try {
        core.saveState(name, value)
      } catch (error) {
        warn('state for the post step', error)
      }
    },
    setSummary(markdown) {
      const path = process.env['GITHUB_STEP_SUMMARY']
      if (!path) return
      try {
        summaryStart ??= statSync(path).size
        truncateSync(path, summaryStart)
        appendFileSync(path, redact(markdown))
      } catch (error) {
        warn('job summary', error)
      }
    },
  }
}

/** Returns a value that the main step saved for its post step; empty if there is none. */
export function readState(name: string): string {
  return core.getState(name)
}

/** Returns the folder that paths in inputs are relative to. */
export function readWorkspace(): string {
  return process.env['GITHUB_WORKSPACE'] ?? process.cwd()
}

/** Returns the facts about this process from the runner's environment. */
export function readRunnerFacts(env: NodeJS.ProcessEnv): RunnerFacts {
  return {
    workflow: readWorkflowRun(env),
    temporaryFolder: env['RUNNER_TEMP'] || tmpdir(),
  }
}

/** Returns the facts about this process's workflow run. A fact is null if a `GITHUB_*` variable for it is not set. */
export function readWorkflowRun(env: NodeJS.ProcessEnv): WorkflowRun {
  const read = (name: string): string | null => (env[name] ? cleanForeignText(env[name], 300) : null)
  const [server, repository, runId] = [read('GITHUB_SERVER_URL'), read('GITHUB_REPOSITORY'), read('GITHUB_RUN_ID')]
  return {
    workflow: read('GITHUB_WORKFLOW'),
    run_id: runId,
    run_attempt: read('GITHUB_RUN_ATTEMPT'),
    job: read('GITHUB_JOB'),
    actor: read('GITHUB_ACTOR'),
    url: server && repository && runId ? `${server}/${repository}/actions/runs/${runId}` : null,
  }
}
