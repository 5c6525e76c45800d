import type { InputNames } from './input-names.ts'

/** The base URLs of a hub's three groups of routes. Each may contain a path. */
export interface HubBases {
  hub: string
  services: string
  deployments: string
}

/** A base URL, and its input as a message ends with it: `hub-url`, or `hub-url, or set services-url`. */
export interface NamedBase {
  readonly url: string
  readonly input: string
}

/** Returns the base URL of a group of routes. A group whose input is not set uses the hub's base URL. */
export function namedBase<Group extends keyof HubBases>(
  bases: Pick<HubBases, Group | 'hub'>,
  group: Group,
  inputs: InputNames,
): NamedBase {
  const url = bases[group]
  const isOwn = group === 'hub' || url !== bases.hub
  return { url, input: isOwn ? inputs[group] : `${inputs.hub}, or set ${inputs[group]}` }
}
