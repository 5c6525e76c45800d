import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { createKey } from '../../hub/access.ts'
import { publishArchive } from '../../hub/marketplace/publish.ts'
import { createProjectKey, type Purpose } from '../../hub/project/keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { openStore, type Store } from '../../hub/store.ts'
import type { ArtifactCache } from '../artifact-cache.ts'
import { firstLineOf } from '../programs.ts'
import { SIGNING_SECRET, SLUG, type Workload } from '../workloads.ts'
import type { MarketplaceTarget, ProjectTarget } from './hosts.ts'

const CLI = join(import.meta.dirname, '../../hub/cli.ts')

/** The reference hub in its own process, started as `npm run hub` starts it. */
export interface ServedHub {
  readonly url: string
  readonly child: ChildProcess
  /** The processor time in milliseconds, and the peak memory in MB of 10^6 bytes. Needs Linux. */
  usage(): { cpuMs: number; peakMb: number }
  stop(signal?: NodeJS.Signals): Promise<void>
}

/** Serves a data folder on a free port of 127.0.0.1. Rejects if the hub ends before it listens. */
export async function serveHub(dataDir: string): Promise<ServedHub> {
  const child = spawn(process.execPath, [CLI, '--port', '0', '--data', dataDir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const line = await firstLineOf(child)
  return {
    url: line.replace(/^.* /, ''),
    child,
    usage: () => usageOf(child.pid ?? 0),
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      await exited
    },
  }
}

const TICK_MS = 10

function usageOf(pid: number): { cpuMs: number; peakMb: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const [user, system] = stat.slice(stat.lastIndexOf(')')).split(' ').slice(12, 14).map(Number)
  const [, peakKib] = /^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return { cpuMs: ((user ?? 0) + (system ?? 0)) * TICK_MS, peakMb: (Number(peakKib) * 1024) / 1e6 }
}

/** The targets without the URL of their hub, which does not run yet. */
interface Targets {
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
