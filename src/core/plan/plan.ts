import { z } from 'zod/mini'
import { didYouMean } from '../document/near-miss.ts'
import { type DocumentWords, SchemaComplaints, valueAt } from '../document/schema-problems.ts'
import { MAX_REPORTED_PROBLEMS, problemAt, SourceError, type SourceProblem } from '../document/source-problem.ts'
import { parseYamlSource, type YamlPath, type YamlSource } from '../document/yaml-source.ts'
import { cleanForeignText } from '../foreign-text.ts'
import { projectIdSchema, versionSchema } from '../identifiers.ts'
import { OPERATOR_YAML_LIMITS } from '../limits.ts'
import { runToEnd } from '../pausing-work.ts'
import { ACTIONS } from './action.ts'
import { planGraphProblems } from './plan-graph.ts'
import { type PlanPositions, positionsIn } from './plan-positions.ts'
import { anyStepSchema, buildStep, keysOfStep, type PlanStep, stepSchema } from './plan-step.ts'

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
  const parsed = planSchema.safeParse(source.value)
  yield
  const complaints = parsed.success ? [] : stepAwareProblems(parsed.error.issues, source)
  yield
  const problems = [...source.problems, ...complaints, ...planGraphProblems(source)]
  if (!parsed.success || problems.length > 0) throw new PlanError(problems, source)
  yield
  return buildPlan(parsed.data, source)
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

type Issue = z.core.$ZodIssue

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
  const { error } = anyStepSchema.safeParse(valueAt(source.value, path))
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
