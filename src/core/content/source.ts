import { z } from 'zod/mini'
import { kindSchema, MAX_PATH_BYTES, slugSchema, versionSchema } from '../identifiers.ts'

/** Applies to the escaped URL, which git gets and the host records. Escaping may turn one letter into 12 characters. */
const MAX_URL_CHARS = 2000
const MAX_REF_CHARS = 255

/** The source of a part that its project names but does not contain (docs/project-contract.md, "Sources"). */
export type ExternalSource = MarketplaceSource | GitSource

export interface MarketplaceSource {
  readonly from: 'marketplace'
  readonly slug: string
  /** A version, or `latest`. */
  readonly version: string
  readonly kind: 'plugin' | 'service'
  /** The directory of the fetched tree that becomes the part; undefined for the whole tree. */
  readonly subdirectory: string | undefined
}

export interface GitSource {
  readonly from: 'git'
  /** https, without a user, password, query or fragment. */
  readonly url: string
  readonly ref: string
  readonly subdirectory: string | undefined
}

/** True for a full commit id in lower case, of SHA-1 or SHA-256. */
export function isCommitId(ref: string): boolean {
  return /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/.test(ref)
}

/**
 * True if a signature covers the bytes that arrive: a hub signs whatever it serves, and the signed manifest may name a
 * digest or a commit.
 */
export function isPinned(source: ExternalSource, sha256: string | null): boolean {
  return source.from === 'marketplace' || sha256 !== null || isCommitId(source.ref)
}

/** True if an accepted source always supplies the same tree: every accepted git source is pinned. */
export function isFixed(source: ExternalSource): boolean {
  return source.from === 'git' || source.version !== 'latest'
}

const urlSchema = z.pipe(
  z.string().check(
    z.refine(text => (URL.parse(text)?.href ?? text).length <= MAX_URL_CHARS, {
      error: `must be at most ${MAX_URL_CHARS} characters when it is escaped`,
    }),
    z.refine(isGitUrl, {
      error: 'must be an https URL without a user, password, query or fragment, and without "@", spaces or backslashes',
    }),
  ),
  // Keeps only the normalized spelling, so that git reads the URL as it is read here.
  z.transform(text => new URL(text).href),
)

/** The names of branches and tags that git accepts, without the signs of a refspec or a revision. */
const REF = /^(?![-+./])(?!.*(?:\.\.|\/\/|@\{|\/\.|\.lock(?:\/|$)|[./]$))[!-~]+$/
const REF_SIGNS = /[~^:?*[\\]/

const refSchema = z.pipe(
  z.string().check(
    z.refine(text => text.length <= MAX_REF_CHARS && REF.test(text) && !REF_SIGNS.test(text) && text !== '@', {
      error: `must be a full commit id, or the name of a branch or tag in at most ${MAX_REF_CHARS} visible ASCII characters`,
    }),
  ),
  z.transform(ref => (isCommitId(ref.toLowerCase()) ? ref.toLowerCase() : ref)),
)

const subdirectorySchema = z.pipe(
  z.nullish(
    z.string().check(
      z.maxLength(MAX_PATH_BYTES, { error: `must be at most ${MAX_PATH_BYTES} characters` }),
      z.regex(/^(?:(?!\.{1,2}(?:\/|$))[^/\\\p{Cc}]+(?:\/|$))*$/u, {
        error:
          'must be a relative path inside the tree, without backslashes or control characters, and without a name that is empty, "." or ".."',
      }),
    ),
  ),
  z.transform(path => path?.replace(/\/$/, '') || undefined),
)

const writtenSchema = z.lazy(() =>
  z
    .object({
      marketplace_slug: z.nullish(slugSchema),
      marketplace_version: z.nullish(versionSchema),
      marketplace_kind: z.nullish(kindSchema),
      url: z.nullish(urlSchema),
      ref: z.nullish(refSchema),
      subdirectory: subdirectorySchema,
    })
    .check(
      z.refine(({ marketplace_slug, url }) => (marketplace_slug ?? null) === null || (url ?? null) === null, {
        error: 'must have marketplace_slug or url, not both',
      }),
      z.refine(({ marketplace_slug, url }) => (marketplace_slug ?? url ?? null) !== null, {
        error: 'must have marketplace_slug, or url with ref',
      }),
      z.refine(({ marketplace_slug, ref }) => (marketplace_slug ?? null) === null || (ref ?? null) === null, {
        path: ['ref'],
        error: 'belongs to a url, and must not be used with marketplace_slug',
      }),
      z.refine(source => (source.url ?? null) === null || hasMarketplaceDefaults(source), {
        error: 'must not have marketplace_version or marketplace_kind together with a url',
      }),
      z.refine(({ url, ref }) => (url ?? null) === null || (ref ?? null) !== null, {
        path: ['ref'],
        error: 'is missing: a url needs it',
      }),
    ),
)

/**
 * True if the marketplace keys have their defaults, which a packer may always write. Any other value would be ignored.
 */
function hasMarketplaceDefaults(written: { marketplace_version?: unknown; marketplace_kind?: unknown }): boolean {
  const { marketplace_version: version, marketplace_kind: kind } = written
  return (version ?? 'latest') === 'latest' && (kind ?? 'plugin') === 'plugin'
}

/** The form of `source`; unknown keys are ignored. */
export const externalSourceSchema = z.lazy(() => z.pipe(writtenSchema, z.transform(buildSource)))

function buildSource(written: z.infer<typeof writtenSchema>): ExternalSource {
  const { marketplace_slug: slug, marketplace_version, marketplace_kind, url, ref, subdirectory } = written
  if (typeof slug === 'string') {
    const [version, kind] = [marketplace_version ?? 'latest', marketplace_kind ?? 'plugin']
    return { from: 'marketplace', slug, version, kind, subdirectory }
  }
  return { from: 'git', url: url ?? '', ref: ref ?? '', subdirectory }
}

/** Accepts only https, because git would run a program for `ext::`, and read this host's files for `file:`. */
function isGitUrl(text: string): boolean {
  const url = URL.parse(text)
  if (url === null || url.protocol !== 'https:' || !/^https:\/\/[^/]/i.test(text)) return false
  const { username, password, search, hash } = url
  return `${username}${password}${search}${hash}` === '' && !/[\s\\?#@\p{Cc}]/u.test(text)
}

/** Tokens for git servers, by `host` or `host:port` as in a URL: lower case, without the default port of https. */
export type GitTokens = ReadonlyMap<string, string>

/** API keys of a marketplace, by the slug of the plugin or service that they fetch. */
export type SlugKeys = ReadonlyMap<string, string>

export interface ParsedTokens {
  readonly tokens: ReadonlyMap<string, string>
  /** The problems, each as part of a sentence, without any token. */
  readonly problems: readonly string[]
}

/** One word of visible ASCII, which a header carries unchanged. */
const TOKEN = /^[\x21-\x7e]+$/

/** Parses lines of the form `host=token` or `host:port=token`. Ignores empty lines and lines that begin with `#`. */
export function parseGitTokens(text: string): ParsedTokens {
  return parseTokens(text, { lines: 'host=token or host:port=token', word: 'a token', parseName: parseTokenHost })
}

/** Parses lines of the form `slug=key`. Ignores empty lines and lines that begin with `#`. */
export function parseSlugKeys(text: string): ParsedTokens {
  return parseTokens(text, { lines: 'slug=key', word: 'a key', parseName: slug => slugSchema.safeParse(slug).data })
}

/** How the lines of an input that names tokens are written, in the words of its messages. */
interface TokenForm {
  readonly lines: string
  readonly word: string
  readonly parseName: (text: string) => string | undefined
}

function parseTokens(text: string, form: TokenForm): ParsedTokens {
  const tokens = new Map<string, string>()
  const problems = text.split(/\r\n|\r|\n/).flatMap((line, index) => {
    if (line.trim() === '' || line.trimStart().startsWith('#')) return []
    const problem = addLine(tokens, { line: line.trim(), number: index + 1 }, form)
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
function addLine(
  tokens: Map<string, string>,
  { line, number }: { readonly line: string; readonly number: number },
  { lines, word, parseName }: TokenForm,
): string | undefined {
  const equals = line.indexOf('=')
  const [name, token] = [parseName(line.slice(0, Math.max(0, equals)).trim()), line.slice(equals + 1).trim()]
  if (name === undefined) return `must consist of lines ${lines}, but line ${number} has another form`
  if (tokens.has(name)) return `must name ${name} only once, but line ${number} names it again`
  if (!TOKEN.test(token))
    return `must contain, for ${name} in line ${number}, ${word} of visible ASCII characters without spaces`
  tokens.set(name, token)
  return undefined
}

function parseTokenHost(text: string): string | undefined {
  if (!/^(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/.test(text)) return undefined
  return URL.parse(`https://${text}/`)?.host
}
