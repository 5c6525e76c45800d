import { DeploymentError } from '../../core/errors.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import { projectServiceOf, type Service, serviceOf } from '../services/service.ts'
import type { InstallOrder } from './step-context.ts'

/**
 * Returns the service of one plugin; without a plugin, the project-wide unit or, if there is none, each part's service.
 */
export function servicesOf(order: InstallOrder, plugin: string | undefined): Service[] {
  const config = requireConfig(order)
  const ids = plugin === undefined ? order.parts.map(part => part.id) : [plugin]
  const find = plugin === undefined ? projectServiceOf : serviceOf
  const services = ids.map(id => requireEntry(find(config, id), 'supervisor'))
  return [...new Map(services.map(service => [JSON.stringify(service), service])).values()]
}

export function requireConfig({ hostConfig }: Pick<InstallOrder, 'hostConfig'>): HostConfig {
  if (hostConfig === undefined)
    throw new DeploymentError('step_failed', 'The plan needs a host config, but there is none: set host-config.')
  return hostConfig
}

/**
 * Returns an entry that the plan needs. The entry should exist, because the plan was checked before anything was
 * fetched. Throws DeploymentError `step_failed` if the entry does not exist.
 */
export function requireEntry<T extends object>(entry: T | undefined, name: string): T {
  if (entry === undefined) throw new DeploymentError('step_failed', `The host config has no ${name}.`)
  return entry
}
