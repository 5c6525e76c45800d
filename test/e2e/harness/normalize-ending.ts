import { hostname } from 'node:os'

type Places = Readonly<Record<string, string>>

/** Replaces the paths and addresses of this machine with those of an example. */
export function placed(text: string, places: Places): string {
  const longestFirst = Object.entries(places).toSorted(([a], [b]) => b.length - a.length)
  return longestFirst
    .reduce((all, [from, to]) => all.replaceAll(from, to).replaceAll(encoded(from), encoded(to)), text)
    .replaceAll(hostname(), 'this-host')
}

/**
 * Replaces everything in a summary that differs from run to run: paths, addresses, ids, digests, times, sizes in bytes,
 * and numbers of attempts.
 */
export function normalizeSummary(markdown: string, places: Places): string {
  return normalize(placed(markdown, places))
}

/**
 * Replaces the same texts in a log, and writes each group as its full title and its lines, because the form of a group
 * depends on the machine's speed. A group that ends soon has its full title. A slow group has a bare title; its full
 * title is in a line after the group.
 */
export function normalizeLog(log: string, places: Places): string {
  return normalize(placed(withTitles(log), places))
}

/** The lines of a log that a reader sees before opening a group. The titles of groups begin with a triangle. */
export function foldLog(log: string): string[] {
  return withTitles(log)
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('    '))
}

function withTitles(log: string): string {
  const unmasked = log.replace(/^::add-mask::.*\n/gm, '')
  const soon = unmasked.replace(
    /^::group::(.*)\n([\s\S]*?)^::endgroup::\n/gm,
    (_, title, lines) => `▸ ${title}\n${indent(lines)}`,
  )
  // After a slow group, a line repeats the group's title and adds the group's work.
  return soon.replace(/^▸ ([^:\n]+)\n((?: {4}.*\n)*)(\1(?:: .*)? \([\d.]+ .*\))\n/gm, '▸ $3\n$2')
}

function indent(lines: string): string {
  return lines.replace(/^(?=.)/gm, '    ')
}

function normalize(text: string): string {
  return text
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'ID')
    .replace(/\b[0-9a-f]{64}\b/g, 'DIGEST')
    .replace(/\b[0-9a-f]{8}…[0-9a-f]{4}\b/g, 'DIG…EST')
    .replace(/\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d\.\d{3}Z/g, 'TIME')
    .replace(/\d{4}-\d\d-\d\d \d\d:\d\d UTC/g, 'TIME')
    .replace(/\b\d+ bytes\b/g, 'N bytes')
    .replace(/(?<!for )\b[\d.]+( |&nbsp;)(?:ms|s)\b/g, 'N$1s')
    .replace(/\(attempts?: \d+\)/g, '(attempts: N)')
}

/** A text as a summary escapes it. */
function encoded(text: string): string {
  return text.replaceAll('_', '&#95;').replaceAll('://', '&#58;//')
}
