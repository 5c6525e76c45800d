import { didYouMean } from '../document/near-miss.ts'
import { firstProblems, type SourceProblem } from '../document/source-problem.ts'
import type { YamlPath, YamlSource } from '../document/yaml-source.ts'
import { cleanForeignText } from '../foreign-text.ts'
import { type DependentStep, findCycles } from './plan-order.ts'

/**
 * Finds the mistakes in the ids and dependencies of a plan: repeated ids, unknown dependencies, steps that depend on
 * themselves, and cycles, which are shown in full. Reads the plan as it is written, and therefore finds these mistakes
 * even if a step has others. Returns the first `MAX_REPORTED_PROBLEMS`, in the order of the file.
 */
export function planGraphProblems(source: YamlSource): SourceProblem[] {
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
