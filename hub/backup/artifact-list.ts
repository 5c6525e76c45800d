import { DatabaseSync } from 'node:sqlite'
import { z } from 'zod'
import type { ArtifactFile } from '../artifacts.ts'

const artifactsSchema = z.array(z.object({ sha256: z.string().regex(/^[0-9a-f]{64}$/), size: z.number() }))

/** The artifacts that a copied database names, each once. Throws when it is damaged or not a hub's. */
export function listArtifacts(database: string): ArtifactFile[] {
  const db = new DatabaseSync(database, { readOnly: true })
  try {
    const { integrity_check } = db.prepare('PRAGMA integrity_check').get() ?? {}
    if (integrity_check !== 'ok') throw new Error(String(integrity_check))
    const rows = db
      .prepare('SELECT sha256, size FROM versions UNION SELECT sha256, size FROM project_versions ORDER BY sha256')
      .all()
    return artifactsSchema.parse(rows)
  } finally {
    db.close()
  }
}
