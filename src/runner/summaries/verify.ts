import type { DeployError } from '../../core/errors.ts'
import { bytesInWords, cell, code, countInWords, listAll, listFirst, table } from '../../core/text.ts'
import { SourceError } from '../../core/yaml/problems.ts'
import type { Note } from '../log.ts'
import { noteBlocks } from './deploy.ts'
import { readingFailure } from './failure.ts'
import type { Headline } from './outcome.ts'

const MAX_NAMED_FILES = 10

/** The subject that a release gate was asked to check. */
export interface CheckedSubject {
  /** A hub's artifact, a file, or `none` for the operator's files alone. */
  readonly mode: 'hub' | 'file' | 'none'
  readonly kind: string | undefined
  /** The slug, or the path of the file. */
  readonly name: string | undefined
  /** The requested version. */
  readonly version: string | undefined
  /** The hub's URL or the file's path. */
  readonly from: string | undefined
  /** The pinned digest. */
  readonly pinned: string | undefined
  /** Paths of the operator's files. */
  readonly plan: string | undefined
  readonly hostConfigs: readonly string[]
}

/** The facts that the gate found. */
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

/** Describes how a release gate ended, in one line. */
export function describeGate(subject: CheckedSubject, { facts, error }: CheckResult): Headline {
  const { mode, name = 'the artifact', version } = subject
  const mark = error === undefined ? '✅' : '❌'
  if (error !== undefined && INPUT_ERRORS.has(error.code))
    return { mark, sentence: 'The inputs are not valid; no artifact was checked' }
  if (mode === 'none') return { mark, sentence: describeFiles(subject, error) }
  const known = facts.version ?? (version === 'latest' ? undefined : version)
  const found = known === undefined ? name : `${name} ${known}`
  return {
    mark,
    sentence:
      error === undefined
        ? `${found} is verified: ${facts.steps === undefined ? 'signature and contents; no plan was checked' : 'signature, contents and plan'}`
        : `${found} is not verified: do not install it`,
  }
}

/** With these errors, even the subject of the check may be unknown. */
const INPUT_ERRORS: ReadonlySet<string> = new Set(['missing_input', 'invalid_input'])

function describeFiles({ plan, hostConfigs }: CheckedSubject, error: DeployError | undefined): string {
  const isValid = error === undefined
  const wrong = error instanceof SourceError ? new Set(error.problems.map(({ file }) => file)) : undefined
  const files = [plan, ...hostConfigs].flatMap(path => (path === undefined || wrong?.has(path) === false ? [] : path))
  const named = (files.length > MAX_NAMED_FILES ? listFirst(files, MAX_NAMED_FILES) : listAll(files)) || 'The inputs'
  const verdict = isValid ? 'valid' : wrong === undefined ? 'not known to be valid' : 'not valid'
  return `${named} ${files.length === 1 ? 'is' : 'are'} ${verdict}; no artifact was checked`
}

/** Builds the job summary of a release gate as Markdown: the verdict, the reason, and the facts about the artifact. */
export function buildVerifySummary(subject: CheckedSubject, result: CheckResult, notes: readonly Note[] = []): string {
  const { mark, sentence } = describeGate(subject, result)
  const rows = factsOf(subject, result)
  const blocks = [
    `### ${mark} ${cell(sentence)}`,
    ...readingFailure(result.error),
    ...noteBlocks(notes),
    ...(rows.length > 0 ? [table(['Checked', 'Found'], rows)] : []),
  ]
  return `${blocks.join('\n\n')}\n`
}

function factsOf(subject: CheckedSubject, { facts, error }: CheckResult): string[][] {
  const isVerified = error === undefined
  return [
    ...artifactRows(subject, facts),
    ...(error?.code === 'digest_mismatch' ? [['Signature', 'valid, but the digest is not the pinned one']] : []),
    ...(isVerified && subject.mode !== 'none' ? contentRows(subject, facts) : []),
    ...(facts.steps === undefined ? [] : [planRow(subject, facts.steps)]),
    ...(isVerified ? hostConfigRows(subject) : []),
  ]
}

function planRow({ plan, hostConfigs }: CheckedSubject, steps: number): string[] {
  // The default plans of several hosts may differ.
  if (plan === undefined && hostConfigs.length > 1) return ['Plan', 'the default plan of each host']
  return ['Plan', `${plan === undefined ? 'the default plan' : code(plan)}, ${countInWords(steps, 'step')}`]
}

function hostConfigRows({ hostConfigs }: CheckedSubject): string[][] {
  if (hostConfigs.length === 0) return []
  const paths = hostConfigs.map(path => code(path))
  return [[paths.length === 1 ? 'Host config' : 'Host configs', listFirst(paths, MAX_NAMED_FILES)]]
}

function artifactRows({ from }: CheckedSubject, { sha256, size, repo }: CheckedFacts): string[][] {
  if (sha256 === undefined || size === undefined) return []
  return [
    ['Artifact', `${bytesInWords(size)}, sha256 ${code(sha256)}`],
    ...(from === undefined ? [] : [['From', code(from)]]),
    ...(repo === undefined ? [] : [['Repository', `${cell(repo)}, from an unsigned header in the hub's response`]]),
  ]
}

const SOURCES = {
  'plugin.yaml': 'from plugin.yaml, which is signed',
  header: "from an unsigned header in the hub's response",
  requested: 'as requested; the artifact itself names no version',
  listed: 'which the hub lists as its latest; the artifact itself names no version',
} as const

function contentRows(subject: CheckedSubject, facts: CheckedFacts): string[][] {
  const { kind, pinned, version: asked } = subject
  const { version, versionSource } = facts
  const source = versionSource === 'requested' && asked === 'latest' ? 'listed' : versionSource
  return [
    ['Signature', pinned === undefined ? 'valid' : 'valid, and the digest is the pinned one'],
    ...(version === undefined || source === undefined ? [] : [['Version', `${cell(version)}, ${SOURCES[source]}`]]),
    ['Contents', `${cell(kind ?? '')} of ${countInWords(facts.files ?? 0, 'file')}, ${bytesInWords(facts.bytes ?? 0)}`],
  ]
}
