import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseDocument } from 'yaml'
import { z } from 'zod'
import { UsageError } from '../../hub/errors.ts'
import { PLAN_PATH } from '../../hub/project/source-tree.ts'
import type { Project } from './project.ts'

/** The id of the step that fails. */
export const BROKEN_STEP = 'broken'

const stepsSchema = z.array(z.object({ id: z.string().optional(), plugin: z.string().optional() }))

/**
 * Returns the plugin for the step that fails: the first plugin in the plan. Throws UsageError if the plan names no
 * plugin, or already has a step with the id of the added step.
 */
export function pluginToBreak(folder: string): string {
  const steps = stepsOf(folder)
  if (steps.some(({ id }) => id === BROKEN_STEP))
    throw new UsageError(
      `The option --break adds a step "${BROKEN_STEP}", but ${PLAN_PATH} has one already: rename that step, or remove the option.`,
    )
  const plugin = steps.find(step => step.plugin !== undefined)?.plugin
  if (plugin !== undefined) return plugin
  throw new UsageError(`The option --break needs a step with a plugin in ${PLAN_PATH}: remove the option.`)
}

/**
 * Copies a project's sources into a new folder. Adds a step to the copy's plan that runs after all others and fails.
 */
export function copyWithBrokenStep({ folder, pluginsDirname }: Project, copy: string): void {
  for (const path of [pluginsDirname, 'extensions', PLAN_PATH].filter(each => existsSync(join(folder, each))))
    cpSync(join(folder, path), join(copy, path), { recursive: true, verbatimSymlinks: true })
  const plan = parseDocument(readFileSync(join(folder, PLAN_PATH), 'utf8'))
  const depends_on = stepsOf(folder).flatMap(({ id }) => id ?? [])
  plan.addIn(
    ['steps'],
    plan.createNode({ id: BROKEN_STEP, action: 'provision', plugin: pluginToBreak(folder), depends_on }),
  )
  writeFileSync(join(copy, PLAN_PATH), plan.toString())
}

function stepsOf(folder: string): z.infer<typeof stepsSchema> {
  const plan = parseDocument(readFileSync(join(folder, PLAN_PATH), 'utf8'))
  return stepsSchema.parse(plan.toJS()?.steps)
}
