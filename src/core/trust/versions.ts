import compareSemver from 'semver/functions/compare.js'
import parseSemver from 'semver/functions/parse.js'
import { ArtifactError, DeploymentError } from '../errors.ts'

/** True if two version strings name the same version, ignoring a leading `v`. */
export function isSameVersion(a: string, b: string): boolean {
  return withoutLeadingV(a) === withoutLeadingV(b)
}

/**
 * True if `candidate` is older than `installed`; undefined if their order cannot be known. Compares dotted numbers
 * number by number (`2024.05.01`, `2024-05-01`, `1.4`, of any length), semantic versions by their specification, and versions of
 * Python packages by PEP 440.
 */
export function isOlderVersion(candidate: string, installed: string): boolean | undefined {
  const order = compareVersions(candidate, installed)
  return order === undefined ? undefined : order < 0
}

/** The order behind `isOlderVersion`: negative if `one` is older; undefined if the order cannot be known. */
export function compareVersions(one: string, other: string): number | undefined {
  const [a, b] = [withoutLeadingV(one), withoutLeadingV(other)]
  return a === b ? 0 : (compareDotted(a, b) ?? compareSemantic(a, b) ?? comparePythonVersions(a, b))
}

/** True for a version that can be compared with others: dotted numbers, a semantic or a Python version. */
export function isOrderedVersion(version: string): boolean {
  return compareVersions(version, '0') !== undefined
}

const CONDITION = /^(>=|<=|==|>|<|)\s*(\d+(?:\.\d+)*)$/

/**
 * True if a version meets every part of a condition such as `>=2.0,<3.0`. A part without an operator means `==`, and
 * `*` any version. Only dotted numbers can be compared; missing numbers count as 0. Undefined if this cannot be known.
 */
export function meetsCondition(version: string, condition: string): boolean | undefined {
  const parts = condition.split(',').map(part => part.trim())
  const met = parts.filter(part => part !== '*').map(part => meets(withoutLeadingV(version), part))
  return met.includes(false) ? false : met.includes(undefined) ? undefined : true
}

function meets(version: string, part: string): boolean | undefined {
  const [, operator, target = ''] = CONDITION.exec(part) ?? []
  const order = compareDotted(version, target)
  if (operator === undefined || order === undefined) return undefined
  if (order === 0) return operator !== '>' && operator !== '<'
  return operator.startsWith(order > 0 ? '>' : '<')
}

/** Dotted numbers, or a date as in ISO 8601. */
const DOTTED = /^(?:\d+(?:\.\d+)*|\d{4}-\d{2}-\d{2})$/

function compareDotted(a: string, b: string): number | undefined {
  return DOTTED.test(a) && DOTTED.test(b) ? compareNumbers(a.split(/[.-]/), b.split(/[.-]/)) : undefined
}

function compareSemantic(a: string, b: string): number | undefined {
  const [first, second] = [parseSemver(withThreeNumbers(a)), parseSemver(withThreeNumbers(b))]
  return first === null || second === null ? undefined : compareSemver(first, second)
}

/** A short form such as `1.4` counts as `1.4.0`. */
function withThreeNumbers(version: string): string {
  return /^\d+(\.\d+)?$/.test(version) ? `${version}${version.includes('.') ? '.0' : '.0.0'}` : version
}

/** Returns a version for comparisons: `v1.2.0` and `1.2.0` are the same. */
export function withoutLeadingV(version: string): string {
  return version.replace(/^v(?=\d)/, '')
}

/** A version that is installed or retained on this host, and the digest of its artifact; each is null if unknown. */
interface KnownVersion {
  readonly version: string | null
  readonly artifact_sha256: string | null
}

/** The installed part that a `latest` would replace. */
export interface InstalledState {
  /** Null if nothing is installed, or if the version of the installed part is unknown. */
  readonly version: string | null
  /** Whether this action installed the part from the same origin. In that case, its version must be comparable. */
  readonly isOurs: boolean
}

/** `latest` is the operator's input `version`, or the version of a source in a project's manifest. */
type LatestChooser = 'operator' | 'manifest'

const LATEST_WORDS = {
  operator: {
    latest: 'A run with version: latest',
    remedy: "To install the hub's version anyway, name that version or set allow-downgrade: true.",
  },
  manifest: {
    latest: 'A source with the version latest',
    remedy:
      "To install the hub's version anyway, set allow-downgrade: true, or have the publisher name that version in the source and seal the project again.",
  },
} as const

/**
 * Throws DeploymentError `downgrade_refused` for a `latest` that is older than the installed version, or that cannot be
 * compared with a version that this action installed.
 */
export function refuseDowngrade(
  latest: string,
  { version, isOurs }: InstalledState,
  by: LatestChooser = 'operator',
): void {
  if (version === null) return
  const isOlder = isOlderVersion(latest, version)
  if (isOlder === false || (isOlder === undefined && !isOurs)) return
  const finding = isOlder ? 'which is newer' : 'and nothing says which of the two is newer'
  throw downgrade(`The hub's latest version is ${latest}, but this host runs ${version}, ${finding}`, by)
}

/** The version that this host runs now, and the time of its installation; each is null if the record lacks it. */
interface PresentVersion {
  readonly version: string | null
  readonly installed_at?: string | null
}

/**
 * Returns a DeploymentError `downgrade_refused` for a `latest` whose bytes this host has had and replaced, whatever
 * version the hub calls them now. They may be the bytes of an older version.
 */
export function replacedBytes(
  { version, sha256 }: { readonly version: string | null; readonly sha256: string },
  present: PresentVersion | undefined,
  by: LatestChooser = 'operator',
): DeploymentError {
  const served = `the hub's latest version${version === null ? '' : `, ${version}`} (sha256 ${sha256})`
  return downgrade(
    `This host has already replaced ${served}${presentClause(present)}. ${LATEST_WORDS[by].latest} does not restore a replaced version`,
    by,
  )
}

function presentClause(present: PresentVersion | undefined): string {
  const { version = null, installed_at: since = null } = present ?? {}
  if (version === null) return ''
  return `, and now runs ${version}${since === null ? '' : ` (installed on ${since.slice(0, 10)})`}`
}

function downgrade(finding: string, by: LatestChooser): DeploymentError {
  return new DeploymentError('downgrade_refused', `${finding}: nothing was installed. ${LATEST_WORDS[by].remedy}`)
}

/** A version that the hub serves, and the digest of its artifact. */
export interface ServedVersion {
  readonly version: string
  readonly sha256: string
}

/** The bytes that the operator has named, and whether to deploy the installed version again. */
interface AcceptedBytes {
  readonly artifactSha256: string | undefined
  readonly redeploy: boolean
}

/**
 * Throws ArtifactError `version_reused` for a version that this host knows with different bytes, because a published
 * version must never change. Accepts the new bytes only if the operator has pinned them and set `redeploy`. A pin alone
 * is not enough: it may come from a release gate, which knows what the hub serves now, but not what the hub served
 * before.
 */
export function refuseReusedVersion(
  { version, sha256 }: ServedVersion,
  knownVersions: readonly KnownVersion[],
  accepted: AcceptedBytes,
): void {
  if (accepted.redeploy && accepted.artifactSha256 === sha256) return
  const known = knownVersions.filter(
    row => row.version !== null && isSameVersion(row.version, version) && row.artifact_sha256 !== null,
  )
  const [first] = known
  if (first === undefined || known.some(row => row.artifact_sha256 === sha256)) return
  throw new ArtifactError(
    'version_reused',
    `The hub now serves version ${version} with different bytes (sha256 ${sha256}) than this host received before (${first.artifact_sha256}, according to .hub-deploy/installed.json): ` +
      'nothing was installed. Ask the publisher why, or restore the record if it is damaged; to accept the new bytes, set artifact-sha256 to their digest and redeploy to true.',
  )
}

const FORM = new RegExp(
  [
    '^(?<release>\\d+(?:\\.\\d+)*)',
    '(?:[._-]?(?<phase>alpha|beta|preview|pre|rc|a|b|c)[._-]?(?<phaseNumber>\\d*))?',
    '(?<post>[._-]?(?:post|rev|r)[._-]?(?<postNumber>\\d*)|-(?<implicitPost>\\d+))?',
    '(?<dev>[._-]?dev[._-]?(?<devNumber>\\d*))?',
    '(?:\\+(?<local>[a-z0-9]+(?:[._-][a-z0-9]+)*))?$',
  ].join(''),
  'i',
)
const PHASES: Readonly<Record<string, string>> = { a: '0', alpha: '0', b: '1', beta: '1' }
const CANDIDATE = '2'
const FINAL = '3'

/**
 * Compares two versions by the rules of PEP 440. Returns a negative number if `a` is older, and undefined if either
 * version has another form. Does not accept epochs (`1!...`), or `1.0.0-1`, which is 1.0.0.post1 in PEP 440 but a
 * pre-release in a semantic version.
 */
function comparePythonVersions(a: string, b: string): number | undefined {
  const [first, second] = [parse(a), parse(b)]
  if (first === undefined || second === undefined) return undefined
  return (
    compareNumbers(first.release, second.release) ||
    compareNumbers(first.rank, second.rank) ||
    compareLocal(first.local, second.local)
  )
}

/** A number is newer than a word, and a longer version is newer than its beginning. */
function compareLocal(a: readonly string[], b: readonly string[]): number {
  const at = a.findIndex((segment, index) => segment !== b[index])
  const [one, other] = at < 0 ? [undefined, b[a.length]] : [a[at], b[at]]
  if (one === undefined || other === undefined) return Number(one !== undefined) - Number(other !== undefined)
  const [isNumber, isOther] = [/^\d+$/.test(one), /^\d+$/.test(other)]
  if (isNumber && isOther) return compareNumbers([one], [other])
  return isNumber === isOther ? (one < other ? -1 : 1) : Number(isNumber) - Number(isOther)
}

/** Compares two lists of decimal numbers of any length; missing numbers are 0. */
function compareNumbers(a: readonly string[], b: readonly string[]): number {
  const length = Math.max(a.length, b.length)
  const pairs = Array.from({ length }, (_, index) => [BigInt(a[index] ?? 0), BigInt(b[index] ?? 0)] as const)
  const [first, second] = pairs.find(([one, other]) => one !== other) ?? [0n, 0n]
  return first < second ? -1 : Number(first > second)
}

/** The parts of a version that decide its order. */
interface PythonVersion {
  readonly release: readonly string[]
  readonly rank: readonly string[]
  /** The segments after a `+`. */
  readonly local: readonly string[]
}

function parse(version: string): PythonVersion | undefined {
  const found = FORM.exec(version)?.groups
  if (found === undefined) return undefined
  const { release = '', phase, phaseNumber, post, postNumber, implicitPost, dev, devNumber, local } = found
  if (implicitPost !== undefined && parseSemver(version) !== null) return undefined
  const isOnlyDev = dev !== undefined && phase === undefined && post === undefined
  // First comes 1.0.dev1, then a, b and rc, then the release itself; each comes before its own post-releases.
  const stage = isOnlyDev ? ['0', '0'] : [String(Number(phaseRank(phase)) + 1), phaseNumber || '0']
  const later = post === undefined ? ['0', '0'] : ['1', implicitPost ?? (postNumber || '0')]
  const finished = dev === undefined ? ['1', '0'] : ['0', devNumber || '0']
  const segments = local?.toLowerCase().split(/[._-]/) ?? []
  return { release: release.split('.'), rank: [...stage, ...later, ...finished], local: segments }
}

function phaseRank(phase: string | undefined): string {
  return phase === undefined ? FINAL : (PHASES[phase.toLowerCase()] ?? CANDIDATE)
}
