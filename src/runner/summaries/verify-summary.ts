import type { DeployError } from '../../core/errors.ts'
import { cell, code, table } from '../../core/markdown.ts'
import { listProblems } from './problem-list.ts'

/** What a release gate was asked to check. */
export interface CheckedSubject {
  /** What a hub serves, a file, or `none`: the operator's files alone. */
  readonly mode: 'hub' | 'file' | 'none'
  readonly kind: string | undefined
  /** The slug, or the file. */
  readonly name: string | undefined
  /** As it was asked for. */
  readonly version: string | undefined
  /** The hub's URL or the file's path. */
  readonly from: string | undefined
  /** The pinned digest. */
  readonly pinned: string | undefined
  /** Paths of the operator's files. */
  readonly plan: string | undefined
  readonly hostConfig: string | undefined
}

/** What it has found. */
export interface CheckedFacts {
  readonly version?: string | undefined
  readonly versionSource?: 'plugin.yaml' | 'header' | 'requested' | undefined
  readonly sha256?: string
  readonly size?: number
  readonly repo?: string | undefined
  readonly files?: number
  readonly bytes?: number
  readonly steps?: number
}

export interface CheckResult {
  readonly facts: CheckedFacts
  readonly error: DeployError | undefined
}

/** The job summary of a release gate as Markdown: the verdict, why, and then what is known of the artifact. */
export function buildVerifySummary(subject: CheckedSubject, result: CheckResult): string {
  const { error } = result
  const rows = factsOf(subject, result)
  const blocks = [
    `### ${headline(subject, result)}`,
    ...(error === undefined ? [] : [`**${code(error.code)}** ${cell(error.message)}`]),
    ...listProblems(error),
    ...(rows.length > 0 ? [table(['Checked', 'Found'], rows)] : []),
  ]
  return `${blocks.join('\n\n')}\n`
}

function headline(subject: CheckedSubject, { facts, error }: CheckResult): string {
  const { mode, name = 'the artifact', version } = subject
  if (mode === 'none') return headlineOfFiles(subject, error === undefined)
  const known = facts.version ?? (version === 'latest' ? undefined : version)
  const found = known === undefined ? cell(name) : `${cell(name)} ${cell(known)}`
  return `${error === undefined ? '✅ Verified' : '❌ Not verified'}: ${found}`
}

function headlineOfFiles({ plan, hostConfig }: CheckedSubject, isValid: boolean): string {
  const files = [plan, hostConfig].flatMap(path => (path === undefined ? [] : [cell(path)]))
  return `${isValid ? '✅ Valid' : '❌ Not valid'}: ${files.join(' and ') || 'the inputs'}. No artifact was checked.`
}

function factsOf(subject: CheckedSubject, { facts, error }: CheckResult): string[][] {
  const isVerified = error === undefined
  return [
    ...artifactRows(subject, facts),
    ...(isVerified && subject.mode !== 'none' ? contentRows(subject, facts) : []),
    ...(facts.steps === undefined
      ? []
      : [['Plan', `${planName(subject)}, ${facts.steps} ${facts.steps === 1 ? 'step' : 'steps'}`]]),
    ...(isVerified && subject.hostConfig !== undefined ? [['Host config', code(subject.hostConfig)]] : []),
  ]
}

function planName({ plan }: CheckedSubject): string {
  return plan === undefined ? 'the default plan' : code(plan)
}

function artifactRows({ from }: CheckedSubject, { sha256, size, repo }: CheckedFacts): string[][] {
  if (sha256 === undefined || size === undefined) return []
  return [
    ['Artifact', `sha256 ${code(sha256)}, ${size} bytes`],
    ...(from === undefined ? [] : [['From', code(from)]]),
    ...(repo === undefined ? [] : [['Repository', `${cell(repo)}, by a header of the hub, which is not signed`]]),
  ]
}

const SOURCES = {
  'plugin.yaml': 'from plugin.yaml, which is signed',
  header: 'by a header of the hub, which is not signed',
  requested: 'as requested; nothing in the artifact says so',
} as const

function contentRows({ kind, pinned }: CheckedSubject, facts: CheckedFacts): string[][] {
  const { version, versionSource } = facts
  return [
    ['Signature', pinned === undefined ? 'valid' : 'valid, and the digest is the pinned one'],
    ...(version === undefined || versionSource === undefined
      ? []
      : [['Version', `${cell(version)}, ${SOURCES[versionSource]}`]]),
    ['Contents', `${cell(kind ?? '')} of ${facts.files} files, ${facts.bytes} bytes`],
  ]
}
