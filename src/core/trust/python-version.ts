const FORM = new RegExp(
  [
    '^(?<release>\\d+(?:\\.\\d+)*)',
    '(?:[._-]?(?<phase>alpha|beta|preview|pre|rc|a|b|c)[._-]?(?<phaseNumber>\\d*))?',
    '(?<post>[._-]?(?:post|rev|r)[._-]?(?<postNumber>\\d*))?',
    '(?<dev>[._-]?dev[._-]?(?<devNumber>\\d*))?$',
  ].join(''),
  'i',
)
const PHASES: Readonly<Record<string, string>> = { a: '0', alpha: '0', b: '1', beta: '1' }
const CANDIDATE = '2'
const FINAL = '3'

/**
 * Compares two versions by the rules of PEP 440. Returns a negative number if `a` is older, and undefined if either
 * version has another form. Does not accept epochs (`1!...`), local versions (`+...`), or `1.0-1`, which means
 * 1.0.post1 in PEP 440 but not elsewhere.
 */
export function comparePythonVersions(a: string, b: string): number | undefined {
  const [first, second] = [parse(a), parse(b)]
  if (first === undefined || second === undefined) return undefined
  return compareNumbers(first.release, second.release) || compareNumbers(first.rank, second.rank)
}

/** Compares two lists of decimal numbers of any length; missing numbers are 0. */
export function compareNumbers(a: readonly string[], b: readonly string[]): number {
  const length = Math.max(a.length, b.length)
  const pairs = Array.from({ length }, (_, index) => [BigInt(a[index] ?? 0), BigInt(b[index] ?? 0)] as const)
  const [first, second] = pairs.find(([one, other]) => one !== other) ?? [0n, 0n]
  return first < second ? -1 : Number(first > second)
}

/** The parts of a version that decide its order. */
interface PythonVersion {
  readonly release: readonly string[]
  readonly rank: readonly string[]
}

function parse(version: string): PythonVersion | undefined {
  const found = FORM.exec(version)?.groups
  if (found === undefined) return undefined
  const { release = '', phase, phaseNumber, post, postNumber, dev, devNumber } = found
  const isOnlyDev = dev !== undefined && phase === undefined && post === undefined
  // First comes 1.0.dev1, then a, b and rc, then the release itself; each comes before its own post-releases.
  const stage = isOnlyDev ? ['0', '0'] : [String(Number(phaseRank(phase)) + 1), phaseNumber || '0']
  const later = post === undefined ? ['0', '0'] : ['1', postNumber || '0']
  const finished = dev === undefined ? ['1', '0'] : ['0', devNumber || '0']
  return { release: release.split('.'), rank: [...stage, ...later, ...finished] }
}

function phaseRank(phase: string | undefined): string {
  return phase === undefined ? FINAL : (PHASES[phase.toLowerCase()] ?? CANDIDATE)
}
