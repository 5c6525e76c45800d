import { valueAt } from '../document/schema-problems.ts'
import type { SourcePosition } from '../document/source-problem.ts'
import type { YamlSource } from '../document/yaml-source.ts'
import { projectIdSchema } from '../identifiers.ts'
import { ACTIONS, isInstallAction } from './action.ts'
import type { Plan } from './plan.ts'
import { type PlanPositions, positionsIn } from './plan-positions.ts'
import { buildStep, MAX_HEALTHCHECK_SECONDS, type PlanStep, stepSchema } from './plan-step.ts'

/** The readable parts of a plan, so that one run also reports the problems that they reveal. */
export interface ReadablePlan {
  /** Undefined if malformed. */
  readonly projectId: string | undefined
  readonly steps: readonly PlanStep[]
  readonly positions: PlanPositions
  /** Whether the plan has an unreadable step that installs a part or may be meant to. */
  readonly hidesInstall: boolean
  /** Whether the plan was accepted, so that every step and dependency is known. */
  readonly isWhole: boolean
}

/** Describes a plan that was accepted. */
export function wholePlan(plan: Plan): ReadablePlan {
  return { ...plan, hidesInstall: false, isWhole: true }
}

/**
 * Returns the readable parts of a refused plan. Pauses at each `yield`. The steps may be incomplete: a step may lack a
 * value that had a mistake, or wait for a step that does not exist.
 */
export function* readablePlan(source: YamlSource): Generator<void, ReadablePlan> {
  const steps = yield* readSteps(source)
  const projectId = projectIdSchema.safeParse(valueAt(source.value, ['project_id'])).data
  return { projectId, ...steps, isWhole: false, positions: positionsIn(source) }
}

function* readSteps(source: YamlSource): Generator<void, Pick<ReadablePlan, 'steps' | 'hidesInstall'>> {
  const written = valueAt(source.value, ['steps'])
  const list: readonly unknown[] = Array.isArray(written) ? written : []
  const read: (PlanStep | undefined)[] = []
  for (const [index, step] of list.entries()) {
    read.push(readStep(step, source.positionOf(['steps', index])))
    yield
  }
  const steps = read.flatMap(step => step ?? [])
  const installs = steps.some(({ action }) => isInstallAction(action))
  const isHidden = (step: unknown, index: number): boolean => {
    const action = textAt(step, 'action')
    if (isKnown(action)) return read[index] === undefined && isInstallAction(action)
    return !installs
  }
  return { steps, hidesInstall: !Array.isArray(written) || list.some(isHidden) }
}

/**
 * Stands in for a timeout that cannot be read: with the longest timeout, no check of the time fails for that reason.
 */
const LONGEST = { timeoutSeconds: MAX_HEALTHCHECK_SECONDS }

/** Reads a step and leaves out the values that cannot be read. Returns undefined if the other values are not enough. */
function readStep(written: unknown, position: SourcePosition): PlanStep | undefined {
  if (typeof written !== 'object' || written === null) return undefined
  // If the action is unknown, only `plugin` can be checked: the step is read as a `configure_plugin` step.
  const action = isKnown(textAt(written, 'action')) ? {} : { action: 'configure_plugin' }
  const step = { ...written, ...action }
  const { data, error } = stepSchema.safeParse(step)
  if (data !== undefined) return buildStep(data, position)
  const bad = error.issues.flatMap(issue => (issue.code === 'unrecognized_keys' ? issue.keys : issue.path.slice(0, 1)))
  const rest = stepSchema.safeParse(Object.fromEntries(Object.entries(step).filter(([key]) => !bad.includes(key))))
  if (!rest.success) return undefined
  // Without its plugin, the step would concern everything that the plan installs.
  if (bad.includes('plugin')) return undefined
  const built = buildStep(rest.data, position)
  return built.action === 'healthcheck' && bad.includes('timeout') ? { ...built, ...LONGEST } : built
}

function isKnown(action: string): boolean {
  return ACTIONS.some(known => known === action)
}

function textAt(step: unknown, key: string): string {
  const value =
    typeof step === 'object' && step !== null ? Object.entries(step).find(([name]) => name === key)?.[1] : ''
  return typeof value === 'string' ? value : ''
}
