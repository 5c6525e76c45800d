import { listNames } from '../../core/foreign-text.ts'
import { MAX_SMALL_FILE_BYTES } from '../../core/limits.ts'
import { unsetSettings } from '../../core/plan/env-template.ts'
import { readSmallFileSync } from '../files/read-small-file.ts'
import { isAbsent } from '../files/tree-walk.ts'
import { placeName, settingsPath } from '../host/layout.ts'
import type { StepContext } from './step-context.ts'

type Context = Pick<StepContext, 'deployment' | 'order'>

/**
 * Logs by name the required settings that the host lacks, for parts without a `write_env` step; that step refuses for
 * itself. Logs nothing where the settings cannot be read. Logs too when the input `settings` goes nowhere, because the plan
 * has no such step. Never throws.
 */
export function noticeSettings(context: Context): void {
  noticeUnset(context)
  noticeUnused(context)
}

function noticeUnused({ deployment, order }: Context): void {
  const names = [...deployment.request.settings.keys()]
  if (names.length === 0 || order.steps.some(({ action }) => action === 'write_env')) return
  deployment.tools.log.notice(
    `The input settings has ${listNames(names)}, but the plan has no write_env step, so nothing is written.`,
  )
}

function noticeUnset({ deployment, order }: Context): void {
  const written = new Set(
    order.steps.flatMap(step => (step.action === 'write_env' ? [`${step.from.split('/')[0]}/${step.plugin}`] : [])),
  )
  for (const part of order.parts.filter(other => !written.has(placeName(other)))) {
    const { required } = part.environment
    const path = settingsPath(deployment.layout, part)
    const text = required.length === 0 ? undefined : readSettings(path)
    const unset = text === undefined ? [] : unsetSettings(text, required)
    if (unset.length === 0) continue
    deployment.tools.log.notice(
      `${placeName(part)} requires ${listNames(unset)}. ${path} does not set them, and the plan has no write_env step for it.`,
    )
  }
}

/** Empty where there is no file, undefined where it cannot be read. */
function readSettings(path: string): string | undefined {
  try {
    return readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
  } catch (error) {
    return isAbsent(error) ? '' : undefined
  }
}
