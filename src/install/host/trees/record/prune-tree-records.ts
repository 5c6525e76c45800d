import { readdirSync, unlinkSync } from 'node:fs'
import type { Layout } from '../../layout.ts'
import type { TreeIdentity } from './tree-identity.ts'

/**
 * Removes the records that no installed or retained version names, and nothing else. If some cannot be removed, throws
 * the first error after trying to remove all of them.
 */
export function pruneTreeRecords({ trees }: Layout, used: readonly TreeIdentity[]): void {
  const names = new Set(
    used.flatMap(({ tree_digest: digest, tree_record: record }) => {
      if (record !== undefined) return [`${record}.tree`]
      return digest === null ? [] : [`${digest}.json`]
    }),
  )
  const stale = readdirSync(trees).filter(name => /^[0-9a-f]{64}\.(?:json|tree)$/.test(name) && !names.has(name))
  const errors: unknown[] = []
  for (const name of stale) {
    try {
      unlinkSync(`${trees}/${name}`)
    } catch (error) {
      errors.push(error)
    }
  }
  if (errors.length > 0) throw errors[0]
}
