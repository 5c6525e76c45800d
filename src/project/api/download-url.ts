import { ArtifactError, ConfigError } from '../../core/errors.ts'
import { faultOf } from '../../net/policy/url-policy.ts'

/**
 * Resolves the descriptor's `download_url`, which may be relative to the URL of the hub's answer. Plain http on an
 * https hub's own host becomes https: a hub behind a proxy may not know that it is reached over https. This applies
 * only if the URL names the hub's own port or no port. The port stays as the URL names it. Another port is another
 * service, to which the wire's rules for plain http apply. Throws ArtifactError `bad_response` if `download_url` is not
 * a URL. Throws ConfigError `insecure_url` for a scheme other than https and http, and for a user name or password. The
 * wire judges the address.
 */
export function resolveDownloadUrl(downloadUrl: string, answerUrl: string, hub: URL): URL {
  if (!URL.canParse(downloadUrl, answerUrl)) {
    const message = `${hub.origin} answered with a download_url that is not a URL: report this to the hub's operator.`
    throw new ArtifactError('bad_response', message)
  }
  const url = new URL(downloadUrl, answerUrl)
  const fault = faultOf(url)
  if (fault !== undefined) {
    const message = `Expected an https URL as the download_url that ${hub.origin} gives, found one with ${fault}: report this to the hub's operator.`
    throw new ConfigError('insecure_url', message)
  }
  return isHubWithoutTls(url, hub) ? withHttps(url) : url
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
