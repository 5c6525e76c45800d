import { FLOWS } from '../../src/actions/flows.ts'
import { ActionStep } from '../../src/runner/step.ts'
import { reportOf } from '../install/prepared-host.ts'

// Runs a step whose deployment never ends. With the argument `begun`, the deployment has begun.
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
