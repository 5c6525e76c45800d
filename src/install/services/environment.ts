import { allowedEnvironment } from '../files/child-process.ts'
import type { Service } from './service.ts'

/** Where each supervisor's command line looks for its daemon or cluster, beside what `HOME` holds. */
const WHEREABOUTS: Record<Service['supervisor'], readonly string[]> = {
  systemd: ['XDG_RUNTIME_DIR', 'DBUS_SESSION_BUS_ADDRESS'],
  docker: [
    'DOCKER_HOST',
    'DOCKER_CONTEXT',
    'DOCKER_CONFIG',
    'DOCKER_TLS_VERIFY',
    'DOCKER_CERT_PATH',
    'DOCKER_API_VERSION',
    'XDG_RUNTIME_DIR',
  ],
  kubernetes: ['KUBECONFIG'],
}

/** What a supervisor's command line may know of the environment: what every child may, and where its daemon or cluster is. */
export function supervisorEnvironment(service: Service): Record<string, string> {
  const found = WHEREABOUTS[service.supervisor].flatMap(name => {
    const value = process.env[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return allowedEnvironment({ ...runtimeDirectory(service), ...Object.fromEntries(found) })
}

/** A user manager is found through the runtime directory of the user, which a service's environment may lack. */
function runtimeDirectory(service: Service): Record<string, string> {
  const uid = process.getuid?.()
  if (service.supervisor !== 'systemd' || service.scope !== 'user' || uid === undefined) return {}
  return { XDG_RUNTIME_DIR: `/run/user/${uid}` }
}
