import { z } from 'zod/mini'
import { OPERATOR_YAML_LIMITS, projectIdSchema, versionSchema } from '../identifiers.ts'
import { runToEnd } from '../log.ts'
import { cleanForeignText } from '../text.ts'
import {
  didYouMean,
  firstProblems,
  MAX_REPORTED_PROBLEMS,
  problemAt,
  SourceError,
  type SourcePosition,
  type SourceProblem,
} from '../yaml/problems.ts'
import type { Issue } from '../yaml/schema.ts'
import { type DocumentWords, SchemaComplaints, valueAt } from '../yaml/schema.ts'
import { parseYamlSource, type YamlPath, type YamlSource } from '../yaml/source.ts'
import {
  ACTIONS,
  anyStepSchema,
  buildStep,
  isInstallAction,
  keysOfStep,
  MAX_HEALTHCHECK_SECONDS,
  type PlanStep,
  stepSchema,
  withoutEmptyKeys,
} from './step.ts'

export type PlanProblem = SourceProblem

/** A plan (install.yaml) that can run: known actions and keys, unique ids, dependencies without cycles. */
export interface Plan {
  readonly formatVersion: '1'
  readonly projectId: string
  readonly version: string
  readonly steps: readonly PlanStep[]
  readonly positions: PlanPositions
}

/** The error for a plan that is refused: code `invalid_plan`, with its problems. */
export class PlanError extends SourceError {
  override readonly name: string = 'PlanError'
  /** The source, if parts of it can still be read: see `readablePlan`. */
  readonly source: YamlSource | undefined

  constructor(problems: readonly PlanProblem[], source?: YamlSource) {
    super('invalid_plan', 'The install plan', problems)
    this.source = source
  }
}

/**
 * Parses the plan in `text` strictly as one YAML document; problems name `file`. Refuses unknown actions and keys,
 * repeated ids, unknown dependencies and cycles, and lists the problems. Throws PlanError `invalid_plan`.
 */
export function parsePlan(text: string, file: string, limits = OPERATOR_YAML_LIMITS): Plan {
  return runToEnd(parsePlanSlowly(text, file, limits))
}

/** Like `parsePlan`, but pauses at each `yield`: the longest accepted plan takes half a second. */
export function* parsePlanSlowly(text: string, file: string, limits = OPERATOR_YAML_LIMITS): Generator<void, Plan> {
  const source = yield* parseYamlSource(text, file, limits)
  if (source.value === undefined) throw new PlanError(source.problems)
  yield
  const parsed = planSchema.safeParse(withoutEmptyStepKeys(source.value))
  yield
  const complaints = parsed.success ? [] : stepAwareProblems(parsed.error.issues, source)
  yield
  const problems = [...source.problems, ...complaints, ...planGraphProblems(source)]
  if (!parsed.success || problems.length > 0) throw new PlanError(problems, source)
  yield
  return buildPlan(parsed.data, source)
}

function withoutEmptyStepKeys(plan: unknown): unknown {
  const steps = propertyOf(plan, 'steps')
  return Array.isArray(steps) ? { ...(plan as object), steps: steps.map(withoutEmptyKeys) } : plan
}

/** The form of a plan; its graph is checked separately. */
export const planSchema = z.strictObject({
  format_version: z.literal(['1', 1]),
  project_id: projectIdSchema,
  version: versionSchema,
  steps: z.array(stepSchema).check(z.minLength(1, { error: 'must contain at least one step' })),
})

function buildPlan(written: z.infer<typeof planSchema>, source: YamlSource): Plan {
  return {
    formatVersion: '1',
    projectId: written.project_id,
    version: written.version,
    steps: written.steps.map((step, index) => buildStep(step, source.positionOf(['steps', index]))),
    positions: positionsIn(source),
  }
}

/**
 * Turns the schema's issues into problems. Also checks the common keys of a step whose action is unknown, because the
 * schema does not look inside that step.
 */
function stepAwareProblems(issues: readonly Issue[], source: YamlSource): PlanProblem[] {
  const strangers = issues.filter(isUnknownAction)
  const known = issues.filter(issue => !isUnknownAction(issue))
  const common = strangers
    .slice(0, MAX_REPORTED_PROBLEMS)
    .flatMap(({ path }) => commonIssues(path.slice(0, -1), source))
  return [
    ...strangers.slice(0, MAX_REPORTED_PROBLEMS).map(({ path }) => unknownActionProblem(path, source)),
    ...new SchemaComplaints(source, planWords).problemsOf([...known, ...common]),
  ]
}

function isUnknownAction(issue: Issue): boolean {
  return issue.code === 'invalid_union' && issue.discriminator === 'action'
}

function commonIssues(path: YamlPath, source: YamlSource): Issue[] {
  const { error } = anyStepSchema.safeParse(withoutEmptyKeys(valueAt(source.value, path)))
  return (error?.issues ?? []).map(issue => ({ ...issue, path: [...path, ...issue.path] }))
}

function unknownActionProblem(path: YamlPath, source: YamlSource): PlanProblem {
  const { prefix } = planWords.subjectOf(path, source.value)
  return problemAt(source.positionOf(path), `${prefix}${actionComplaint(valueAt(source.value, path))}`)
}

function actionComplaint(action: unknown): string {
  const actions = `(accepted actions: ${ACTIONS.join(', ')})`
  if (action === undefined) return `action is missing ${actions}`
  if (typeof action !== 'string') return `action must be a word ${actions}`
  const hint = didYouMean(action, ACTIONS)
  return `unknown action "${cleanForeignText(action, 60)}"${hint} ${actions}`
}

const planWords: DocumentWords = {
  document: 'the plan',
  subjectOf(path, value) {
    if (path[0] !== 'steps' || typeof path[1] !== 'number') return { prefix: '', covers: 0 }
    const id = valueAt(value, ['steps', path[1], 'id'])
    const name = typeof id === 'string' ? `"${cleanForeignText(id, 64)}"` : path[1] + 1
    return { prefix: `step ${name}: `, covers: 2 }
  },
  keysAt(path, value) {
    return path.length === 0 ? Object.keys(planSchema.shape) : keysOfStep(valueAt(value, [...path, 'action']))
  },
}

/**
 * Finds the mistakes in the ids and dependencies of a plan: repeated ids, unknown dependencies, steps that depend on
 * themselves, and cycles, which are shown in full. Reads the plan as it is written, and therefore finds these mistakes
 * even if a step has others. Returns the first `MAX_REPORTED_PROBLEMS`, in the order of the file.
 */
function planGraphProblems(source: YamlSource): SourceProblem[] {
  const steps = writtenSteps(source.value)
  const found = [...duplicateIds(steps), ...wrongDependencies(steps), ...cycles(steps)]
  return firstProblems(found.map(({ path, sentence }) => ({ at: source.positionOf(path), sentence })))
}

interface WrittenStep extends DependentStep {
  /** The step's name in messages. */
  readonly name: string
  readonly path: YamlPath
  /** The path of each entry of `dependsOn`. */
  readonly entryPaths: readonly YamlPath[]
}

interface GraphProblem {
  readonly path: YamlPath
  readonly sentence: () => string
}

function writtenSteps(plan: unknown): WrittenStep[] {
  return listAt(plan, 'steps').map((step, index) => {
    const path = ['steps', index]
    const named = listAt(step, 'depends_on').flatMap((id, entry) =>
      typeof id === 'string' ? [{ id, path: [...path, 'depends_on', entry] }] : [],
    )
    const dependencies = { dependsOn: named.map(({ id }) => id), entryPaths: named.map(entry => entry.path) }
    const id = propertyOf(step, 'id')
    if (typeof id !== 'string') return { id: `(${index + 1})`, name: `step ${index + 1}`, path, ...dependencies }
    return { id, name: `step "${shown(id)}"`, path, ...dependencies }
  })
}

function duplicateIds(steps: readonly WrittenStep[]): GraphProblem[] {
  const taken = new Set<string>()
  return steps.flatMap(({ id, name, path }) => {
    const duplicate = taken.has(id)
    taken.add(id)
    return duplicate ? [{ path: [...path, 'id'], sentence: () => `${name}: another step already has this id` }] : []
  })
}

function wrongDependencies(steps: readonly WrittenStep[]): GraphProblem[] {
  const ids = new Set(steps.map(step => step.id))
  return steps.flatMap(({ id, name, dependsOn, entryPaths }) =>
    dependsOn.flatMap((dependency, entry) => {
      const path = entryPaths[entry] ?? []
      if (dependency === id) return [{ path, sentence: () => `${name} depends on itself` }]
      if (ids.has(dependency)) return []
      return [{ path, sentence: () => `${name} ${unknownDependency(dependency, ids)}` }]
    }),
  )
}

function unknownDependency(dependency: string, ids: ReadonlySet<string>): string {
  return `depends on "${shown(dependency)}", which is not in this plan${didYouMean(dependency, ids)}`
}

function cycles(steps: readonly WrittenStep[]): GraphProblem[] {
  return findCycles(steps).map(({ ids, step, entry }) => ({
    path: step.entryPaths[entry] ?? [],
    sentence: () => `these steps wait for each other: ${ids.map(shown).join(' → ')}`,
  }))
}

function shown(id: string): string {
  return cleanForeignText(id, 64)
}

function listAt(value: unknown, key: string): unknown[] {
  const list = propertyOf(value, key)
  return Array.isArray(list) ? list : []
}

function propertyOf(value: unknown, key: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, key)
    ? value[key as keyof typeof value]
    : undefined
}

/** The fields of a step that decide the order. */
export interface DependentStep {
  readonly id: string
  readonly dependsOn: readonly string[]
}

/**
 * Steps that wait for each other: `ids` begins and ends with the same step. An entry of `step.dependsOn` closes the
 * cycle.
 */
interface DependencyCycle<Step> {
  readonly ids: readonly string[]
  readonly step: Step
  /** The index in `step.dependsOn`. */
  readonly entry: number
}

/** Enough to see the mistake; a hostile plan must not make us list every cycle. */
const MAX_CYCLES = 20

/**
 * Returns the steps in the order in which they run: depth-first over the steps as written, with dependencies first. The
 * same plan always gives the same order. Expects steps that `parsePlan` has checked, in any number and depth.
 */
export function orderSteps<Step extends DependentStep>({ steps }: { readonly steps: readonly Step[] }): Step[] {
  return new DependencyWalk(steps).order
}

/**
 * Finds at most `MAX_CYCLES` cycles: dependencies that lead back to a step that waits for them. Ignores a step's
 * dependency on itself.
 */
export function findCycles<Step extends DependentStep>(steps: readonly Step[]): DependencyCycle<Step>[] {
  return new DependencyWalk(steps).cycles
}

interface Frame<Step> {
  readonly step: Step
  /** The index in `step.dependsOn` of the dependency that the walk follows. */
  entry: number
}

/** A depth-first walk with its own stack, because a plan may be deeper than the call stack allows. */
class DependencyWalk<Step extends DependentStep> {
  readonly order: Step[] = []
  readonly cycles: DependencyCycle<Step>[] = []
  readonly #byId: ReadonlyMap<string, Step>
  readonly #entered = new Set<Step>()
  readonly #waiting = new Set<Step>()
  readonly #path: Frame<Step>[] = []

  constructor(steps: readonly Step[]) {
    this.#byId = new Map(steps.toReversed().map(step => [step.id, step]))
    for (const step of steps) this.#walkFrom(step)
  }

  #walkFrom(root: Step): void {
    this.#enter(root)
    for (let frame = this.#path.at(-1); frame !== undefined; frame = this.#path.at(-1)) this.#advance(frame)
  }

  #advance(frame: Frame<Step>): void {
    frame.entry += 1
    const id = frame.step.dependsOn[frame.entry]
    if (id === undefined) this.#leave(frame.step)
    else this.#follow(frame, this.#byId.get(id))
  }

  #follow(frame: Frame<Step>, dependency: Step | undefined): void {
    if (dependency === undefined || dependency === frame.step) return
    if (this.#waiting.has(dependency)) this.#noteCycle(frame, dependency)
    else this.#enter(dependency)
  }

  #enter(step: Step): void {
    if (this.#entered.has(step)) return
    this.#entered.add(step)
    this.#waiting.add(step)
    this.#path.push({ step, entry: -1 })
  }

  #leave(step: Step): void {
    this.#path.pop()
    this.#waiting.delete(step)
    this.order.push(step)
  }

  #noteCycle({ step: last, entry }: Frame<Step>, first: Step): void {
    if (this.cycles.length >= MAX_CYCLES) return
    const steps = this.#path.map(frame => frame.step)
    const around = steps.slice(steps.indexOf(first))
    this.cycles.push({ ids: [...around, first].map(step => step.id), step: last, entry })
  }
}

/** The positions in a plan at which later checks report problems. */
interface PlanPositions {
  readonly projectId: SourcePosition
  readonly steps: SourcePosition
}

function positionsIn(source: YamlSource): PlanPositions {
  return { projectId: source.positionOf(['project_id']), steps: source.positionOfKey(['steps']) }
}

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
  const step = withoutEmptyKeys({ ...written, ...action }) as object
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
