import { allowedEnvironment } from '../files/child-process.ts'
import type { Service } from './service.ts'

/**
 * The variables that each supervisor's command line uses to find its daemon or cluster; the command line may also use
 * files in `HOME`.
 */
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

/**
 * The environment of a supervisor's command line: the variables that every child gets, and those that the command line
 * uses to find its daemon or cluster.
 */
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

/**
 * For commands from the host config: the variable that says whether the deployment has so far changed what the host
 * runs.
 */
export function changedVariable({ changed }: { readonly changed: boolean }): { DEPLOYMENT_CHANGED: string } {
  return { DEPLOYMENT_CHANGED: String(changed) }
}
