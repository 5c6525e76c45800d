import compareSemver from 'semver/functions/compare.js'
import parseSemver from 'semver/functions/parse.js'
import { compareNumbers, comparePythonVersions } from './python-version.ts'

/** True if two version strings name the same version, ignoring a leading `v`. */
export function isSameVersion(a: string, b: string): boolean {
  return withoutLeadingV(a) === withoutLeadingV(b)
}

/**
 * True if `candidate` is older than `installed`; undefined if their order cannot be known. Compares dotted numbers
 * number by number (`2024.05.01`, `1.4`, of any length), semantic versions by their specification, and versions of
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

const DOTTED = /^\d+(?:\.\d+)*$/

function compareDotted(a: string, b: string): number | undefined {
  return DOTTED.test(a) && DOTTED.test(b) ? compareNumbers(a.split('.'), b.split('.')) : undefined
}

function compareSemantic(a: string, b: string): number | undefined {
  const [first, second] = [parseSemver(completed(a)), parseSemver(completed(b))]
  return first === null || second === null ? undefined : compareSemver(first, second)
}

/** A short form such as `1.4` counts as `1.4.0`. */
function completed(version: string): string {
  return /^\d+(\.\d+)?$/.test(version) ? `${version}${version.includes('.') ? '.0' : '.0.0'}` : version
}

/** Returns a version for comparisons: `v1.2.0` and `1.2.0` are the same. */
export function withoutLeadingV(version: string): string {
  return version.replace(/^v(?=\d)/, '')
}
