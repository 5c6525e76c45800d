import type { SemVer } from 'semver'
import lt from 'semver/functions/lt.js'
import parse from 'semver/functions/parse.js'

/** Whether two version strings name the same version, ignoring a leading `v`. */
export function isSameVersion(a: string, b: string): boolean {
  return withoutLeadingV(a) === withoutLeadingV(b)
}

/**
 * Whether `candidate` is older than `installed` by semantic versioning; `undefined` when either is not a semantic
 * version (a short form such as `1.4` counts as `1.4.0`).
 */
export function isOlderVersion(candidate: string, installed: string): boolean | undefined {
  const [a, b] = [comparable(candidate), comparable(installed)]
  return a === null || b === null ? undefined : lt(a, b)
}

function comparable(version: string): SemVer | null {
  const text = withoutLeadingV(version)
  const full = /^\d+(\.\d+)?$/.test(text) ? `${text}${text.includes('.') ? '.0' : '.0.0'}` : text
  return parse(full)
}

function withoutLeadingV(version: string): string {
  return version.replace(/^v(?=\d)/, '')
}
