import { listNames } from '../../../core/foreign-text.ts'
import { isInstallAction } from '../../../core/plan/action.ts'
import { countInWords } from '../../../core/quantities.ts'
import type { LocalReport } from '../../../install/reports/local-report.ts'

/** The parts that the health checks of a run have examined. */
export type CheckedParts =
  | { readonly extent: 'none' | 'all' }
  /** `inWords` names the parts: `cart (1 of 3 parts)`. */
  | { readonly extent: 'some'; readonly inWords: string }

/** Counts only checks that passed and had a part to examine. */
export function checkedParts({ steps }: Pick<LocalReport, 'steps'>): CheckedParts {
  const passed = steps.filter(({ action, status }) => action === 'healthcheck' && status === 'done')
  const ids = new Set(passed.flatMap(({ checked = [] }) => checked))
  const parts = steps.filter(({ action, status }) => isInstallAction(action) && status !== 'not_run').length
  if (ids.size === 0) return { extent: 'none' }
  if (ids.size >= parts) return { extent: 'all' }
  return { extent: 'some', inWords: `${listNames([...ids])} (${ids.size} of ${countInWords(parts, 'part')})` }
}
