import { type DownloadAnswer, type DownloadRequest, download } from './download.ts'
import { type JsonAnswer, type JsonRequest, requestJson } from './json.ts'
import { type ChildRoute, routeForChild } from './relay.ts'
import { buildWireSettings, type WireOptions } from './settings.ts'

export type { DownloadAnswer, DownloadRequest } from './download.ts'
export type { JsonAnswer, JsonRequest } from './json.ts'
export type { WireOptions } from './settings.ts'

/** HTTP as this project uses it: each request has its own connection, and none stays open. */
export interface Wire {
  /** See `requestJson`. */
  requestJson: (request: JsonRequest) => Promise<JsonAnswer>
  /** See `download`. */
  download: (request: DownloadRequest) => Promise<DownloadAnswer>
  /** Returns the route by which another program may reach a URL that a hub or publisher chose; see `routeForChild`. */
  routeForChild: (url: URL, hub: URL) => Promise<ChildRoute>
}

/**
 * Creates a wire that uses the proxies in the environment. Throws ConfigError `invalid_input` if `ca` contains no
 * certificate or a damaged one.
 */
export function createWire(options: WireOptions): Wire {
  const settings = buildWireSettings(options)
  return {
    requestJson: request => requestJson(request, settings),
    download: request => download(request, settings),
    routeForChild: (url, hub) => routeForChild(url, hub, settings),
  }
}
