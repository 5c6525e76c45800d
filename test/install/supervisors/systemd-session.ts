import type { Service } from '../../../src/install/supervisors/service.ts'
import { planServiceChange, restoreServices } from '../../../src/install/supervisors/service-changes.ts'
import { readServiceState, superviseService } from '../../../src/install/supervisors/supervise.ts'
import { collectLog } from '../collected-log.ts'

/** Run beside a real user manager that knows web.service and missing.service not; prints what it saw as one line of JSON. */
const WEB: Service = { supervisor: 'systemd', scope: 'user', unit: 'web.service' }
const MISSING: Service = { ...WEB, unit: 'missing.service' }
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
seen['refusal'] = await superviseService(MISSING, 'start', { replicas: null }).catch(error => error.code)
console.log(JSON.stringify(seen))
