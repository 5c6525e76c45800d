import { ArtifactError } from '../../core/errors.ts'
import { refuseInsecureHop } from '../../net/policy/url-policy.ts'

/**
 * Resolves the descriptor's `download_url`, which a hub may also give relative to its own answer. Plain http on the
 * https hub's own host becomes https, because a hub behind a proxy may not know that it is reached by https: the hub's
 * own port stays, and a missing port stays missing. Another port is another service; the wire refuses it like any plain
 * http. Throws ArtifactError `bad_response` if it is no URL, and ConfigError `insecure_url` if a hub elsewhere names
 * this host itself.
 */
export function resolveDownloadUrl(downloadUrl: string, answerUrl: string, hub: URL): URL {
  if (!URL.canParse(downloadUrl, answerUrl)) {
    const message = `The download_url that ${hub.origin} gives is not a URL: report this to the hub's operator.`
    throw new ArtifactError('bad_response', message)
  }
  const url = new URL(downloadUrl, answerUrl)
  const secured = withHttps(url)
  // Judged like a redirect, except for plain http, which the wire accepts or refuses.
  refuseInsecureHop(hub, secured)
  return isHubWithoutTls(url, hub) ? secured : url
}

function isHubWithoutTls(url: URL, hub: URL): boolean {
  const isOnHub = url.hostname === hub.hostname && (url.port === '' || url.port === hub.port)
  return hub.protocol === 'https:' && url.protocol === 'http:' && isOnHub
}

function withHttps(url: URL): URL {
  const secured = new URL(url)
  secured.protocol = 'https:'
  return secured
}
