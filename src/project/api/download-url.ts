import { ArtifactError } from '../../core/errors.ts'
import { refuseInsecureHop } from '../../net/policy/url-policy.ts'

/**
 * Where the artifact is: the descriptor's `download_url`, which a hub may also give relative to its own answer. Plain
 * http on the https hub's own host becomes https, as a hub behind a proxy cannot know better: the hub's own port stays,
 * none stays none. Another port is another service, and is left for the wire to refuse as any plain http. Throws
 * ArtifactError `bad_response` when it is no URL, ConfigError `insecure_url` when a hub elsewhere names this host
 * itself.
 */
export function resolveDownloadUrl(downloadUrl: string, answerUrl: string, hub: URL): URL {
  if (!URL.canParse(downloadUrl, answerUrl)) {
    const message = `The download_url that ${hub.origin} gives is not a URL: report this to the hub's operator.`
    throw new ArtifactError('bad_response', message)
  }
  const url = new URL(downloadUrl, answerUrl)
  const secured = withHttps(url)
  // Judged as a redirect, but for plain http: whether that may be used is the wire's to say.
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
