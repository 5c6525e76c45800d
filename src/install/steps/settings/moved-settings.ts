import { relative } from 'node:path'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { installPath, isSamePlace, settingsPath } from '../../host/layout.ts'
import { formerPlace } from '../../host/previous-install.ts'
import type { PlannedMove } from '../../transaction/changes/move.ts'
import type { NewPart, ReturningPart } from '../parts/part.ts'
import type { StepContext } from '../step-context.ts'

/** The moves of the settings that the host has for a part; `announce` logs the moves once they are made. */
export interface SettingsMove {
  readonly moves: readonly PlannedMove[]
  announce(): void
}

/**
 * Plans the moves of the settings that the host has for a part. The settings follow the part to another directory, even
 * if the part was removed in between.
 */
export function planSettingsMove(
  { deployment, order }: StepContext,
  { previous, ...part }: NewPart | ReturningPart,
): SettingsMove {
  const { layout, tools } = deployment
  const former = formerPlace(previous, order.origin)
  if (isSamePlace(former, part)) return { moves: [], announce: () => undefined }
  const [from, to] = [settingsPath(layout, former), settingsPath(layout, part)]
  const { place, installed } = previous
  const [isThere, isTaken] = [pathExistsSync(from), pathExistsSync(to)]
  const move = { type: 'move', from: relative(layout.root, from), to: relative(layout.root, to) } as const
  return {
    moves: isThere && !isTaken ? [move] : [],
    announce() {
      if (installed !== undefined)
        tools.log.notice(`The part that was in ${installPath(layout, place)} is now in ${installPath(layout, part)}.`)
      if (isThere && isTaken)
        tools.log.notice(`${from} was not moved, because ${to} exists: remove ${from} when nothing needs it.`)
      else if (isThere) tools.log.notice(`The settings file ${from} was moved to ${to}.`)
    },
  }
}
