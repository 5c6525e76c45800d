import { readFileSync } from 'node:fs'
import { createKey } from '../../hub/keys.ts'
import { publishArchive } from '../../hub/marketplace/publish.ts'
import { createProjectKey, type Purpose } from '../../hub/project/project-keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { openStore, type Store } from '../../hub/store.ts'
import type { ArtifactCache } from '../artifact-cache.ts'
import { SIGNING_SECRET, SLUG } from '../release.ts'
import type { Workload } from '../workloads.ts'
import type { MarketplaceTarget, ProjectTarget } from './host.ts'

/** The targets without the URL of their hub, which does not run yet. */
export interface Targets {
  readonly marketplace: Omit<MarketplaceTarget, 'hubUrl'>
  readonly project: Omit<ProjectTarget, 'hubUrl'>
}

/** Publishes a workload in a data folder as a plugin and as a sealed project, with keys for both. */
export async function publishTargets(dataDir: string, cache: ArtifactCache, workload: Workload): Promise<Targets> {
  const store = openStore(dataDir)
  try {
    return {
      marketplace: await publishPlugin(store, cache, workload),
      project: await publishSealed(store, cache, workload),
    }
  } finally {
    store.close()
  }
}

async function publishPlugin(store: Store, cache: ArtifactCache, workload: Workload): Promise<Targets['marketplace']> {
  const { path, version } = await cache.get(workload, 'zip', 1)
  const publication = { kind: 'plugin', slug: SLUG, version, signingSecret: SIGNING_SECRET } as const
  const { sha256 } = await publishArchive(store, readFileSync(path), publication)
  const { key } = createKey(store, { name: 'bench' })
  return { contract: 'marketplace', slug: SLUG, version, sha256, apiKey: key }
}

async function publishSealed(store: Store, cache: ArtifactCache, workload: Workload): Promise<Targets['project']> {
  const artifact = await cache.get(workload, 'sealed', 1)
  if (artifact.format !== 'sealed') throw new Error(`The cache has no sealed file for ${workload.name}.`)
  const { path, version, signature, signerPublicKey, dek } = artifact
  const release = { project_id: SLUG, version, signature, signer_public_key: signerPublicKey, dek }
  const { sha256 } = await publishProject(store, { bytes: readFileSync(path), release })
  const newKey = (purpose: Purpose) => createProjectKey(store, { project_id: SLUG, purpose, name: 'bench' }).value
  const keys = { devkey: newKey('devkey'), credential: newKey('credential') }
  return { contract: 'project', projectId: SLUG, version, sha256, ...keys }
}
