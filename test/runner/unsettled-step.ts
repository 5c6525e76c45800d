import { FLOWS } from '../../src/actions/flows.ts'
import { runMainStep } from '../../src/runner/main-step.ts'
import { reportOf } from '../install/prepared-host.ts'

/** A main step whose deployment never ends; `locked` or `unlocked` says how far it came. */
const isLocked = process.argv[2] === 'locked'
await runMainStep({
  flows: FLOWS,
  readInputs: () => ({
    request: {},
    connection: { allowHttp: false, ca: undefined },
    secrets: [],
    settingValues: [],
    problems: [],
  }),
  run(_inputs, { observer }) {
    if (isLocked) observer.onLocked(reportOf({ outcome: 'interrupted' }))
    return new Promise(() => {})
  },
  outputsOf: ({ report }) => ({ outcome: report.outcome, 'error-code': report.error?.code ?? '' }),
})
