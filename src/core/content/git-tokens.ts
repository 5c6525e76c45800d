/** Tokens for git servers, by `host` or `host:port` as in a URL: lower case, without the default port of https. */
export type GitTokens = ReadonlyMap<string, string>

export interface ParsedGitTokens {
  readonly tokens: GitTokens
  /** The problems, each as part of a sentence, without any token. */
  readonly problems: readonly string[]
}

/** One word of visible ASCII, which a header carries unchanged. */
const TOKEN = /^[\x21-\x7e]+$/

/** Parses lines of the form `host=token` or `host:port=token`. Ignores empty lines and lines that begin with `#`. */
export function parseGitTokens(text: string): ParsedGitTokens {
  const tokens = new Map<string, string>()
  const problems = text.split(/\r\n|\r|\n/).flatMap((line, index) => {
    if (line.trim() === '' || line.trimStart().startsWith('#')) return []
    const problem = addLine(tokens, line.trim(), index + 1)
    return problem === undefined ? [] : [problem]
  })
  return { tokens, problems }
}

/**
 * Returns credentials with the token as the password. The common code hosts accept it there, whatever the user's name.
 */
export function basicCredentials(token: string): string {
  return Buffer.from(`x-access-token:${token}`).toString('base64')
}

/** Adds a line's token. Returns the problem with the line, if any. Does not quote the line, which may be a token. */
function addLine(tokens: Map<string, string>, line: string, number: number): string | undefined {
  const equals = line.indexOf('=')
  const [host, token] = [hostOf(line.slice(0, Math.max(0, equals)).trim()), line.slice(equals + 1).trim()]
  if (host === undefined)
    return `must consist of lines host=token or host:port=token, but line ${number} has another form`
  if (tokens.has(host)) return `must name ${host} only once, but line ${number} names it again`
  if (!TOKEN.test(token))
    return `must contain, for ${host} in line ${number}, a token of visible ASCII characters without spaces`
  tokens.set(host, token)
  return undefined
}

function hostOf(text: string): string | undefined {
  if (!/^(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/.test(text)) return undefined
  return URL.parse(`https://${text}/`)?.host
}
