import { FLOWS } from '../../src/actions/flows.ts'
import { outputsOfFailure, Step } from '../../src/runner/step.ts'
import { reportOf } from '../install/prepared-host.ts'

// Runs a step whose deployment never ends. With the argument `begun`, the deployment has begun.
const step = new Step({ secrets: [], settingValues: [] }, outputsOfFailure)
const { observer } = step.deploymentTools({ allowHttp: false, ca: undefined }, FLOWS, ({ report }) => ({
  outcome: report.outcome,
  'error-code': report.error?.code ?? '',
}))
if (process.argv[2] === 'begun') observer.onBegun(reportOf({ outcome: 'interrupted' }))
await new Promise(() => {})
