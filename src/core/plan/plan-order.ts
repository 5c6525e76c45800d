/** The fields of a step that decide the order. */
export interface DependentStep {
  readonly id: string
  readonly dependsOn: readonly string[]
}

/**
 * Steps that wait for each other: `ids` begins and ends with the same step. An entry of `step.dependsOn` closes the
 * cycle.
 */
export interface DependencyCycle<Step> {
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
