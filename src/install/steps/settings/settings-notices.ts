import { listNames } from '../../../core/foreign-text.ts'
import { MAX_SMALL_FILE_BYTES } from '../../../core/limits.ts'
import { unsetSettings } from '../../../core/plan/env-template.ts'
import { readSmallFileSync } from '../../files/read-small-file.ts'
import { isAbsent, pathExistsSync } from '../../files/trees/tree-walk.ts'
import { placePath, settingsPath } from '../../host/layout.ts'
import type { StepContext } from '../step-context.ts'
import { injectedEnvPath } from './injected-env.ts'
import { writesSettings } from './written-settings.ts'

type Context = Pick<StepContext, 'deployment' | 'order'>

/**
 * Logs the names of required settings that the host lacks, for parts without a `write_env` step. (A `write_env` step
 * itself fails if settings are missing.) Logs no names if the settings cannot be read. Also logs a notice if the input
 * `settings` has no effect because the plan has no `write_env` step. Never throws.
 */
export function noticeSettings(context: Context): void {
  noticeUnset(context)
  noticeUnused(context)
}

function noticeUnused({ deployment, order }: Context): void {
  const names = [...deployment.request.settings.keys()]
  if (names.length === 0 || order.steps.some(({ action }) => action === 'write_env')) return
  deployment.tools.log.notice(
    `The settings given as input contain ${listNames(names)}, but the plan has no write_env step, so these settings are not written.`,
  )
}

function noticeUnset({ deployment, order }: Context): void {
  for (const part of order.parts) {
    if (writesSettings(order.steps, part)) continue
    const { required } = part.environment
    const path = settingsPath(deployment.layout, part)
    const text = required.length === 0 ? undefined : readSettings(path)
    const unset = text === undefined ? [] : unsetSettings(text, required)
    if (unset.length === 0) continue
    deployment.tools.log.notice(
      `${placePath(part)} requires ${listNames(unset)}, which ${path} does not set: add a line NAME=value for each to that file, or, if the file does not exist, use a plan with a write_env step, which creates it.`,
    )
  }
}

/**
 * After all steps have run, warns of plugins that lack the only settings that their host framework gives them. Omits
 * plugins with a `write_env` step, which itself logs why it could not create these settings.
 */
export function warnOfMissingEnv({ deployment, order }: Context): void {
  for (const part of order.parts) {
    const path = injectedEnvPath(deployment.layout, part)
    if (!part.environment.injectsEnv || writesSettings(order.steps, part) || pathExistsSync(path)) continue
    deployment.tools.log.warning(
      `${placePath(part)} gets its settings from ${path} only (envconfiguration.inject in its plugin.yaml). ${path} does not exist, so the host framework may not load the plugin. Add a write_env step to the plan, or create ${path}.`,
    )
  }
}

/** Returns an empty string if the file does not exist, or undefined if the file cannot be read. */
function readSettings(path: string): string | undefined {
  try {
    return readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
  } catch (error) {
    return isAbsent(error) ? '' : undefined
  }
}
