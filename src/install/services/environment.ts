import { allowedEnvironment } from '../files/child-process.ts'
import type { Service } from './service.ts'

/** Where each supervisor's command line looks for its daemon or cluster, apart from files in `HOME`. */
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

/** The environment of a supervisor's command line: what every child may know, and where its daemon or cluster is. */
export function supervisorEnvironment(service: Service): Record<string, string> {
  const found = WHEREABOUTS[service.supervisor].flatMap(name => {
    const value = process.env[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return allowedEnvironment({ ...runtimeDirectory(service), ...Object.fromEntries(found) })
}

/** systemctl finds a user's manager through the runtime directory, which a runner that is itself a service may lack. */
function runtimeDirectory(service: Service): Record<string, string> {
  const uid = process.getuid?.()
  if (service.supervisor !== 'systemd' || service.scope !== 'user' || uid === undefined) return {}
  return { XDG_RUNTIME_DIR: `/run/user/${uid}` }
}

/** What a command of the host config learns of the deployment so far: whether it has changed what the host runs. */
export function changedVariable({ changed }: { readonly changed: boolean }): { DEPLOYMENT_CHANGED: string } {
  return { DEPLOYMENT_CHANGED: String(changed) }
}
