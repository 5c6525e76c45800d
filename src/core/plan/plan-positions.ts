import type { SourcePosition } from '../document/source-problem.ts'
import type { YamlSource } from '../document/yaml-source.ts'

/** The positions of the parts of a plan that later checks report on. */
export interface PlanPositions {
  readonly projectId: SourcePosition
  readonly steps: SourcePosition
}

export function positionsIn(source: YamlSource): PlanPositions {
  return { projectId: source.positionOf(['project_id']), steps: source.positionOfKey(['steps']) }
}
