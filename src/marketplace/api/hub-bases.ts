import type { InputNames } from './input-names.ts'

/** The base URLs of a hub's three groups of routes. Each may contain a path. */
export interface HubBases {
  hub: string
  services: string
  deployments: string
}

/** A base URL, and the input that sets it, worded as the end of a list of inputs. */
export interface NamedBase {
  readonly url: string
  readonly input: string
}

/** The base of a group of routes. A group without its own input uses the hub's. */
export function namedBase<Group extends keyof HubBases>(
  bases: Pick<HubBases, Group | 'hub'>,
  group: Group,
  inputs: InputNames,
): NamedBase {
  const url = bases[group]
  const isOwn = group === 'hub' || url !== bases.hub
  return { url, input: isOwn ? inputs[group] : `${inputs.hub}, or set ${inputs[group]}` }
}
