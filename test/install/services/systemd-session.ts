import { checkHealth } from '../../../src/install/services/check-health.ts'
import type { Service } from '../../../src/install/services/service.ts'
import { planServiceChange, restoreServices } from '../../../src/install/services/service-changes.ts'
import { readServiceRun, readServiceState, superviseService } from '../../../src/install/services/supervise.ts'
import { collectLog } from '../collected-log.ts'

/**
 * Run beside a real user manager that knows web.service, limited.service (which may be started twice a minute) and
 * crashing.service (which is started over and over), but not missing.service; prints what it saw as one line of JSON.
 */
const WEB: Service = { supervisor: 'systemd', scope: 'user', unit: 'web.service' }
const MISSING: Service = { ...WEB, unit: 'missing.service' }
const LIMITED: Service = { ...WEB, unit: 'limited.service' }
const CRASHING: Service = { ...WEB, unit: 'crashing.service' }
const { signal } = new AbortController()
const seen: Record<string, unknown> = {}

async function look(name: string, service: Service): Promise<void> {
  const { known, up, running } = await readServiceState(service)
  seen[name] = { known, up, running }
}

await look('before', WEB)
await look('missing', MISSING)
const started = await planServiceChange(WEB, 'start', [], signal)
await superviseService(WEB, 'start', { replicas: null })
await look('started', WEB)
const restarted = await planServiceChange(WEB, 'restart', [], signal)
await superviseService(WEB, 'restart', { replicas: null })
await superviseService(WEB, 'stop', { replicas: null })
await look('stopped', WEB)
seen['broughtBack'] = await restoreServices([restarted], collectLog())
await look('broughtBackState', WEB)
seen['stoppedAgain'] = await restoreServices([started], collectLog())
await look('stoppedAgainState', WEB)
seen['stoppedMissing'] = await restoreServices([{ ...started, service: MISSING }], collectLog())

const run = await readServiceRun(LIMITED)
await superviseService(LIMITED, 'start', { replicas: null })
const firstRun = await readServiceRun(LIMITED)
const limited = await planServiceChange(LIMITED, 'restart', [], signal)
await superviseService(LIMITED, 'restart', { replicas: null })
const runs = [run, firstRun, await readServiceRun(LIMITED)]
seen['differentRuns'] = new Set(runs).size
seen['oneStartTooMany'] = await superviseService(LIMITED, 'restart', { replicas: null }).catch(error => error.code)
seen['limitedBroughtBack'] = await restoreServices([limited], collectLog())
await look('limitedBroughtBackState', LIMITED)

async function health(service: Service): Promise<string> {
  const healthcheck = { id: 'web', service, check: null, timeout_seconds: 2, retries: 0 }
  return checkHealth({ healthcheck, version: null, log: collectLog(), signal }).then(
    () => 'healthy',
    error => error.code,
  )
}

await superviseService(CRASHING, 'start', { replicas: null })
seen['crashing'] = await health(CRASHING)
await superviseService(CRASHING, 'stop', { replicas: null })
seen['steady'] = await health(LIMITED)
seen['refusal'] = await superviseService(MISSING, 'start', { replicas: null }).catch(error => error.code)
console.log(JSON.stringify(seen))
