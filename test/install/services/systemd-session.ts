import { planServiceChange, restoreServices } from '../../../src/install/services/changes.ts'
import { checkHealth } from '../../../src/install/services/health.ts'
import {
  readServiceRun,
  readServiceState,
  type Service,
  type ServiceAction,
  superviseService,
} from '../../../src/install/services/supervise.ts'
import { collectLog } from '../prepared-host.ts'

/**
 * This script runs next to a real user manager, and prints its findings as one line of JSON. The manager knows
 * web.service, limited.service (which may be started at most twice a minute) and crashing.service (which exits and is
 * restarted over and over), but not missing.service.
 */
const WEB: Service = { supervisor: 'systemd', scope: 'user', unit: 'web.service' }
const MISSING: Service = { ...WEB, unit: 'missing.service' }
const LIMITED: Service = { ...WEB, unit: 'limited.service' }
const CRASHING: Service = { ...WEB, unit: 'crashing.service' }
const { signal } = new AbortController()
const seen: Record<string, unknown> = {}

async function act(service: Service, action: ServiceAction): Promise<void> {
  await superviseService({ service, action, replicas: null })
}

async function see(name: string, service: Service): Promise<void> {
  const { known, up, running } = await readServiceState(service)
  seen[name] = { known, up, running }
}

await see('before', WEB)
await see('missing', MISSING)
const started = await planServiceChange({ service: WEB, part: 'web', action: 'start' }, [], signal)
await act(WEB, 'start')
await see('started', WEB)
const restarted = await planServiceChange({ service: WEB, part: 'web', action: 'restart' }, [], signal)
await act(WEB, 'restart')
await act(WEB, 'stop')
await see('stopped', WEB)
seen['restored'] = await restoreServices([restarted], { log: collectLog(), signal })
await see('restoredState', WEB)
seen['stoppedAgain'] = await restoreServices([started], { log: collectLog(), signal })
await see('stoppedAgainState', WEB)
seen['stoppedMissing'] = await restoreServices([{ ...started, service: MISSING }], { log: collectLog(), signal })

const run = await readServiceRun(LIMITED)
await act(LIMITED, 'start')
const firstRun = await readServiceRun(LIMITED)
const limited = await planServiceChange({ service: LIMITED, part: 'web', action: 'restart' }, [], signal)
await act(LIMITED, 'restart')
const runs = [run, firstRun, await readServiceRun(LIMITED)]
seen['differentRuns'] = new Set(runs).size
seen['oneStartTooMany'] = await act(LIMITED, 'restart').catch(error => error.code)
seen['limitedRestored'] = await restoreServices([limited], { log: collectLog(), signal })
await see('limitedRestoredState', LIMITED)

async function health(service: Service, seconds: number): Promise<string> {
  const healthcheck = { id: 'web', service, check: null, timeout_seconds: seconds, retries: 0 }
  return checkHealth({ healthcheck, version: null, changed: true, log: collectLog(), signal }).then(
    () => 'healthy',
    error => error.code,
  )
}

await act(CRASHING, 'start')
seen['crashing'] = await health(CRASHING, 4)
await act(CRASHING, 'stop')
seen['steady'] = await health(LIMITED, 40)
seen['refusal'] = await act(MISSING, 'start').catch(error => error.code)
console.log(JSON.stringify(seen))
