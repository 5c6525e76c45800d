import { DeploymentError } from '../../core/errors.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import { findNamed, keyOfService, type NamedService, serviceOf } from '../services/service.ts'
import type { InstallOrder } from './step-context.ts'

/**
 * Returns the service of one plugin; without a plugin, the project-wide unit or, if there is none, each part's service.
 */
export function servicesOf(order: InstallOrder, plugin: string | undefined): NamedService[] {
  const config = requireConfig(order)
  const projectWide = plugin === undefined ? findNamed(config, null) : undefined
  if (projectWide !== undefined) return [{ service: projectWide, part: null }]
  const ids = plugin === undefined ? order.parts.map(part => part.id) : [plugin]
  const services = ids.map(part => ({ service: requireEntry(serviceOf(config, part), 'supervisor'), part }))
  return [...new Map(services.map(named => [keyOfService(named.service), named])).values()]
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
