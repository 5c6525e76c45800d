import { z } from 'zod/mini'
import type { HostConfig } from '../../core/plan/host-config.ts'

/** A service that a supervisor of this host runs, with the supervisor's name for it; as written to the journal. */
export const serviceSchema = z.lazy(() =>
  z.discriminatedUnion('supervisor', [
    z.object({ supervisor: z.literal('systemd'), scope: z.enum(['system', 'user']), unit: z.string() }),
    z.object({ supervisor: z.literal('docker'), container: z.string() }),
    z.object({
      supervisor: z.literal('kubernetes'),
      namespace: z.string(),
      deployment: z.string(),
      kubeconfig: z.nullable(z.string()),
      context: z.nullable(z.string()),
    }),
  ]),
)
export type Service = z.infer<typeof serviceSchema>

/** Returns the same key for the same service, even if it was read from a journal. */
export function keyOfService(service: Service): string {
  return JSON.stringify(service)
}

/** Returns the service of an id, or undefined if the host config names no supervisor or says `none`. */
export function serviceOf(config: HostConfig, id: string): Service | undefined {
  const named = config.plugins.get(id)
  const fill = (template: string): string => template.replaceAll('{id}', id)
  switch (config.supervisor) {
    case undefined:
    case 'none':
      return undefined
    case 'systemd':
      return { supervisor: 'systemd', scope: config.systemd.scope, unit: fill(named?.unit ?? config.systemd.unit) }
    case 'docker':
      return { supervisor: 'docker', container: fill(named?.container ?? config.docker.container) }
    case 'kubernetes': {
      const { namespace, deployment, kubeconfig = null, context = null } = config.kubernetes
      return {
        supervisor: 'kubernetes',
        namespace,
        deployment: fill(named?.deployment ?? deployment),
        kubeconfig,
        context,
      }
    }
  }
}

/**
 * Returns the service of an id in a step that names no plugin: the project-wide unit if there is one; otherwise, the
 * id's own service.
 */
export function projectServiceOf(config: HostConfig, id: string): Service | undefined {
  const own = serviceOf(config, id)
  const { projectUnit } = config.systemd
  return own?.supervisor === 'systemd' && projectUnit !== undefined ? { ...own, unit: projectUnit } : own
}

/**
 * Returns the name of a systemd unit alone, because such names are recognized as units. Otherwise, returns the type and
 * the name.
 */
export function shortName(service: Service): string {
  return service.supervisor === 'systemd' ? service.unit : describeService(service)
}

/** Returns the service's type and name, for an operator. */
export function describeService(service: Service): string {
  switch (service.supervisor) {
    case 'systemd':
      return `${service.scope === 'user' ? 'user unit' : 'unit'} ${service.unit}`
    case 'docker':
      return `container ${service.container}`
    case 'kubernetes':
      return `deployment ${service.namespace}/${service.deployment}`
  }
}
