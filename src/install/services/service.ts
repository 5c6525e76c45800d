import type { HostConfig } from '../../core/plan/host-config.ts'

/** A service that a supervisor of this host runs, with the supervisor's name for it. Comes only from a host config. */
export type Service =
  | { readonly supervisor: 'systemd'; readonly scope: 'system' | 'user'; readonly unit: string }
  | { readonly supervisor: 'docker'; readonly container: string }
  | {
      readonly supervisor: 'kubernetes'
      readonly namespace: string
      readonly deployment: string
      readonly kubeconfig: string | null
      readonly context: string | null
    }

/** A service, with the only name that state files have for it. */
export interface NamedService {
  readonly service: Service
  /** The id of the part that the service runs, or null for the project-wide unit. */
  readonly part: string | null
}

/** Returns the same key for the same service. */
export function keyOfService(service: Service): string {
  return JSON.stringify(service)
}

/** Returns the service that a state file names, or undefined if this host config has none for that name. */
export function findNamed(config: HostConfig, part: string | null): Service | undefined {
  if (part !== null) return serviceOf(config, part)
  const { scope, projectUnit } = config.systemd
  return config.supervisor === 'systemd' && projectUnit !== undefined
    ? { supervisor: 'systemd', scope, unit: projectUnit }
    : undefined
}

/** Describes a service by the name that state files have for it. */
export function describePart(part: string | null): string {
  return part === null ? 'the unit of the whole project' : `the service of ${part}`
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
  return findNamed(config, null) ?? serviceOf(config, id)
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
