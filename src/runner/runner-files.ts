import * as core from '@actions/core'
import type { Log } from '../core/log.ts'

/** Outputs without foreign text, or built from texts that were redacted one by one. */
const OWN_OUTPUTS: ReadonlySet<string> = new Set([
  'outcome',
  'changed',
  'reported',
  'state',
  'error-code',
  'deployment-id',
  'duration-ms',
  'plugins',
])

/** The files that a step writes for the runner. A failure to write one is a warning and changes no outcome. */
export interface RunnerFiles {
  setOutputs(outputs: Readonly<Record<string, string>>): void
  /** For the post step. */
  saveState(name: string, value: string): void
  /** Adds Markdown to the job summary, where the runner has one. */
  addSummary(markdown: string): Promise<void>
}

export function createRunnerFiles(log: Log, redact: (text: string) => string): RunnerFiles {
  const warn = (what: string, error: unknown): void =>
    log.warning(`The ${what} could not be written: ${error instanceof Error ? error.message : String(error)}`)
  return {
    setOutputs(outputs) {
      try {
        for (const [name, value] of Object.entries(outputs))
          core.setOutput(name, OWN_OUTPUTS.has(name) ? value : redact(value))
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
    async addSummary(markdown) {
      if (!process.env['GITHUB_STEP_SUMMARY']) return
      try {
        await core.summary.addRaw(redact(markdown)).write()
      } catch (error) {
        warn('job summary', error)
      }
    },
  }
}
