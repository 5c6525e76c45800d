import { cleanForeignText } from '../../core/foreign-text.ts'
import { MAX_SMALL_FILE_BYTES } from '../../core/limits.ts'
import type { Log } from '../../core/log.ts'
import { unsetSettings } from '../../core/plan/env-template.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { readSmallFileSync } from '../files/read-small-file.ts'
import { isAbsent } from '../files/tree-walk.ts'
import { type Layout, placeName, settingsPath } from '../host/layout.ts'
import type { NewThing } from './step-context.ts'

const MAX_NAME_CHARS = 60

export interface ThingsAndSteps {
  layout: Layout
  log: Log
  things: readonly Pick<NewThing, 'shelf' | 'id' | 'environment'>[]
  steps: readonly PlanStep[]
}

/**
 * Tells which required settings, by their names, the host's settings of a thing lack for which the plan writes none; a
 * `write_env` step refuses for itself. Says nothing where the settings cannot be read. Never throws.
 */
export function tellUnsetSettings({ layout, log, things, steps }: ThingsAndSteps): void {
  const written = new Set(
    steps.flatMap(step => (step.action === 'write_env' ? [`${step.from.split('/')[0]}/${step.plugin}`] : [])),
  )
  for (const thing of things.filter(other => !written.has(placeName(other)))) {
    const { required } = thing.environment
    const path = settingsPath(layout, thing)
    const text = required.length === 0 ? undefined : readSettings(path)
    const unset = text === undefined ? [] : unsetSettings(text, required)
    if (unset.length === 0) continue
    const names = unset.map(name => cleanForeignText(name, MAX_NAME_CHARS)).join(', ')
    log.notice(
      `${placeName(thing)} requires ${names}, which ${path} does not set, and the plan has no write_env step for it.`,
    )
  }
}

/** Empty where there are none, undefined where nobody can tell. */
function readSettings(path: string): string | undefined {
  try {
    return readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
  } catch (error) {
    return isAbsent(error) ? '' : undefined
  }
}
