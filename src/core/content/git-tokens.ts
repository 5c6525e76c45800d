/** Tokens for git servers, by `host` or `host:port` as in a URL: lower case, without the default port of https. */
export type GitTokens = ReadonlyMap<string, string>

export interface ParsedGitTokens {
  readonly tokens: GitTokens
  /** The problems, each as part of a sentence, without any token. */
  readonly problems: readonly string[]
}

/** One word of visible ASCII, which a header carries unchanged. */
const TOKEN = /^[\x21-\x7e]+$/

/** Parses lines `host=token` or `host:port=token`. Ignores empty lines and lines that begin with `#`. */
export function parseGitTokens(text: string): ParsedGitTokens {
  const tokens = new Map<string, string>()
  const problems = text.split(/\r\n|\r|\n/).flatMap((line, index) => {
    if (line.trim() === '' || line.trimStart().startsWith('#')) return []
    const problem = addLine(tokens, line.trim())
    return problem === undefined ? [] : [`${problem} (line ${index + 1})`]
  })
  return { tokens, problems }
}

/** Returns a token as the common code hosts accept it in a request: as the password of a user whose name is ignored. */
export function basicCredentials(token: string): string {
  return Buffer.from(`x-access-token:${token}`).toString('base64')
}

/** Adds a line's token. Returns the problem with the line, if any, without quoting the line, which may be a token. */
function addLine(tokens: Map<string, string>, line: string): string | undefined {
  const equals = line.indexOf('=')
  const [host, token] = [hostOf(line.slice(0, Math.max(0, equals)).trim()), line.slice(equals + 1).trim()]
  if (host === undefined) return 'must consist of lines host=token or host:port=token, found a line in another form'
  if (tokens.has(host)) return `must name ${host} only once, found it again`
  if (!TOKEN.test(token)) return `must give ${host} a token of visible ASCII without spaces`
  tokens.set(host, token)
  return undefined
}

function hostOf(text: string): string | undefined {
  if (!/^(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/.test(text)) return undefined
  return URL.parse(`https://${text}/`)?.host
}
