import { z } from 'zod/mini'
import type { HostConfig } from '../../core/plan/host-config.ts'

/** One thing that a supervisor of this host runs, by the names of the host config; as written to the journal. */
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

/**
 * The service of an id, or of the whole project where a step names no plugin and the host config has a project-wide unit.
 * Undefined when the host config has no supervisor, or says `none`.
 */
export function serviceOf(config: HostConfig, id: string, isProjectWide: boolean): Service | undefined {
  const named = config.plugins.get(id)
  const fill = (template: string): string => template.replaceAll('{id}', id)
  switch (config.supervisor) {
    case undefined:
    case 'none':
      return undefined
    case 'systemd': {
      const { scope, unit, projectUnit } = config.systemd
      const own = fill(named?.unit ?? unit)
      return { supervisor: 'systemd', scope, unit: isProjectWide ? (projectUnit ?? own) : own }
    }
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

/** How an operator calls the service. */
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
