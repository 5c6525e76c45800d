import type { DeploymentFacts } from '../facts.ts'
import type { JournalRecord } from './journal-record.ts'

export type Redact = (text: string) => string

/** Returns the value with every text redacted, except in fields with these names; keys stay as they are. */
export function redactTexts(value: unknown, redact: Redact, exceptions: ReadonlySet<string>): unknown {
  if (typeof value === 'string') return redact(value)
  if (Array.isArray(value)) return value.map(item => redactTexts(item, redact, exceptions))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, field]) => [
      key,
      exceptions.has(key) ? field : redactTexts(field, redact, exceptions),
    ]),
  )
}

/**
 * Returns a journal record with all secrets removed from its texts from outside. Places, services, rows and the
 * operator's own facts stay as they are, because a recovery works with them. A version or a repository that contains a
 * secret becomes null.
 */
export function redactRecord(record: JournalRecord, redact: Redact): JournalRecord {
  switch (record.record) {
    case 'begin':
      return { ...record, facts: { ...record.facts, ...withoutSecrets(record.facts, redact) } }
    case 'facts':
      return { ...record, facts: { ...record.facts, ...withoutSecrets(record.facts, redact) } }
    case 'step':
      return { ...record, error: record.error === null ? null : redact(record.error) }
    case 'end':
      return { ...record, end: redactTexts(record.end, redact, END_WORDS) as typeof record.end }
    case 'host':
    case 'state':
    case 'change':
    case 'changes':
    case 'service':
    case 'undone':
    case 'commit':
    case 'reported':
    case 'recovery':
      return record
  }
}

const END_WORDS: ReadonlySet<string> = new Set(['outcome', 'completed_at', 'code', 'step'])
const DRIFT_WORDS: ReadonlySet<string> = new Set(['shelf', 'id', 'directory', 'version', 'instead'])
const FOREIGN_FACTS = ['version', 'previous_version', 'repo'] as const

type PartialFacts = { [K in keyof DeploymentFacts]?: DeploymentFacts[K] | undefined }

function withoutSecrets(facts: PartialFacts, redact: Redact): Partial<DeploymentFacts> {
  const hasSecret = (name: (typeof FOREIGN_FACTS)[number]): boolean => redact(facts[name] ?? '') !== (facts[name] ?? '')
  const drift = facts.drift?.map(entry => redactTexts(entry, redact, DRIFT_WORDS) as typeof entry)
  return { ...Object.fromEntries(FOREIGN_FACTS.filter(hasSecret).map(name => [name, null])), ...(drift && { drift }) }
}
