import { changeService, planServiceChange, restoreServices } from '../../../src/install/services/changes.ts'
import { readServiceState, type Service } from '../../../src/install/services/supervise.ts'
import { collectLog } from '../../install/prepared-host.ts'

/** Restarts greeter.service, and then undoes that, as a run of this user would. Prints the findings as one line of JSON. */
const service: Service = { supervisor: 'systemd', scope: 'system', unit: 'greeter.service' }
const { signal } = new AbortController()
const log = collectLog()
const change = await planServiceChange({ service, part: 'greeter', action: 'restart' }, [], signal)
const message = await changeService(change, 'restart', { log, signal }).then(
  () => 'restarted',
  error => String(error.message),
)
const { untouched, problems, isRunning } = await restoreServices([change], { log, signal })
const { running } = await readServiceState(service)
console.log(JSON.stringify({ message, untouched, problems, isRunning, running }))
