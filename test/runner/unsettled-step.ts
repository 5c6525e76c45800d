import { FLOWS } from '../../src/actions/flows.ts'
import { ActionStep } from '../../src/runner/action-step.ts'
import { reportOf } from '../install/prepared-host.ts'

/** A step whose deployment never ends; `locked` or `unlocked` is the point that it reached. */
const inputs = {
  request: {},
  connection: { allowHttp: false, ca: undefined },
  secrets: [],
  settingValues: [],
  problems: [],
}
const step = new ActionStep(inputs, FLOWS, ({ report }) => ({
  outcome: report.outcome,
  'error-code': report.error?.code ?? '',
}))
if (process.argv[2] === 'begun') step.tools.observer.onBegun(reportOf({ outcome: 'interrupted' }))
await new Promise(() => {})
