// Replaces undici in the bundle. @actions/http-client imports undici (0.9 MB) only for
// `getAgentDispatcher()`, which this project never calls: its requests use node:http and the agent of `getAgent()`.

export class ProxyAgent {
  constructor() {
    throw new Error('The bundle does not contain undici: use node:http with the agent of getAgent().')
  }
}
