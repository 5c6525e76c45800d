import type { SourcePosition } from '../document/source-problem.ts'
import type { YamlSource } from '../document/yaml-source.ts'

/** The positions in a plan at which later checks report problems. */
export interface PlanPositions {
  readonly projectId: SourcePosition
  readonly steps: SourcePosition
}

export function positionsIn(source: YamlSource): PlanPositions {
  return { projectId: source.positionOf(['project_id']), steps: source.positionOfKey(['steps']) }
}
