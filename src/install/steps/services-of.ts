import { DeploymentError } from '../../core/errors.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import { projectServiceOf, type Service, serviceOf } from '../services/service.ts'
import type { InstallOrder } from './step-context.ts'

/** Returns the service of one plugin; without a plugin, the project-wide unit or the service of each part. */
export function servicesOf(order: InstallOrder, plugin: string | undefined): Service[] {
  const config = requireConfig(order)
  const ids = plugin === undefined ? order.parts.map(part => part.id) : [plugin]
  const find = plugin === undefined ? projectServiceOf : serviceOf
  const services = ids.map(id => requireEntry(find(config, id), 'supervisor'))
  return [...new Map(services.map(service => [JSON.stringify(service), service])).values()]
}

export function requireConfig({ hostConfig }: Pick<InstallOrder, 'hostConfig'>): HostConfig {
  return requireEntry(hostConfig, 'host-config')
}

/**
 * Returns the entry, which is always there, because the plan was compared with the host config before anything was
 * fetched. Otherwise throws DeploymentError `step_failed`.
 */
export function requireEntry<T extends object>(entry: T | undefined, name: string): T {
  if (entry === undefined) throw new DeploymentError('step_failed', `The host config has no ${name}.`)
  return entry
}
