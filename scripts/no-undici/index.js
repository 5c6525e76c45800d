// @actions/http-client imports undici, 0.9 MB of it, for `getAgentDispatcher()` alone, which nothing here calls: requests go
// by node:http and `getAgent()`. So that every run does not load what none uses, package.json puts this in its place.

export class ProxyAgent {
  constructor() {
    throw new Error('undici is not part of this bundle: take an agent of node:http, as getAgent() gives it.')
  }
}
