import type { Agent } from 'node:http'
import { HttpClient } from '@actions/http-client'
import type { WireSettings } from '../settings.ts'

/**
 * Creates the agent for one request. The agent connects directly or through the proxy that the environment names for
 * this URL. It verifies every certificate, including that of an https proxy, and `signal` interrupts a proxy that
 * stalls. Throws TypeError if the agent has no options to carry these settings, rather than connect without them.
 */
export function createAgent(
  url: URL,
  { trust, signal }: Pick<WireSettings, 'trust' | 'signal'>,
): { agent: Agent; isProxied: boolean } {
  const client = new HttpClient(undefined, [], { keepAlive: false })
  const agent: Agent & { options?: { proxy?: object } } = client.getAgent(url.href)
  if (agent.options === undefined) throw new TypeError('Expected an HTTP agent with options, found one without.')
  Object.assign(agent.options, trust)
  if (agent.options.proxy !== undefined) Object.assign(agent.options.proxy, trust, { signal })
  return { agent, isProxied: agent.options.proxy !== undefined }
}
