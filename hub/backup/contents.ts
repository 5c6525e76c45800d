import { DatabaseSync } from 'node:sqlite'
import { z } from 'zod'
import type { ArtifactFile } from '../artifacts.ts'

const artifactsSchema = z.array(z.object({ sha256: z.string().regex(/^[0-9a-f]{64}$/), size: z.number() }))

/** The files that a database needs next to it. */
export interface Contents {
  /** Each artifact is listed once. */
  readonly artifacts: readonly ArtifactFile[]
  /** True if sealed versions need the hub's own key. */
  readonly needsKey: boolean
}

/** Reads which files a copied database needs. Throws if the database is damaged or does not belong to a hub. */
export function readContents(database: string): Contents {
  const db = new DatabaseSync(database, { readOnly: true })
  try {
    const { integrity_check } = db.prepare('PRAGMA integrity_check').get() ?? {}
    if (integrity_check !== 'ok') throw new Error(String(integrity_check))
    const rows = db
      .prepare('SELECT sha256, size FROM versions UNION SELECT sha256, size FROM project_versions ORDER BY sha256')
      .all()
    const needsKey = db.prepare('SELECT 1 FROM project_versions LIMIT 1').get() !== undefined
    return { artifacts: artifactsSchema.parse(rows), needsKey }
  } finally {
    db.close()
  }
}
