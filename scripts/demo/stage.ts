import { randomBytes } from 'node:crypto'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createKey } from '../../hub/keys.ts'
import { publishFolder } from '../../hub/marketplace/publish.ts'
import { startHub } from '../../hub/server.ts'
import { openStore } from '../../hub/store.ts'
import { type ActionResult, makeWorkspace, runAction } from '../local-runner.ts'
import { examplePlan, type Release, writeSources } from './releases.ts'

const HOST_ID = 'app-1'
const PLAN = 'deploy/install.yaml'

/** A reference hub, a host without anything on it and an operator's workspace, in one temporary folder. */
export interface DemoStage {
  readonly folder: string
  readonly hubUrl: string
  /** The project root of the host. */
  readonly root: string
  /** Publishes a release, signed; returns its artifact's SHA-256. */
  publish(release: Release): Promise<string>
  /** Flips one bit of an artifact on the hub's own disk. */
  tamper(sha256: string): void
  /** Runs the deploy action from `dist/` for the latest version, with one of the plans below `examples/`. */
  deploy(kind: Release['kind'], slug: string, plan: string): Promise<ActionResult>
  /** The hub's fleet view (contract 4.1) of one plugin or service. */
  readFleet(kind: Release['kind'], slug: string): Promise<HostEntry[]>
  /** Stops the hub; removes the folder unless it is to be kept. */
  close(keep: boolean): Promise<void>
}

export interface HostEntry {
  kind: string
  slug: string
  host_id: string
  version: string
  status: string
}

export async function openStage(): Promise<DemoStage> {
  const folder = mkdtempSync(join(tmpdir(), 'hub-deploy-demo-'))
  const dataDir = join(folder, 'hub')
  const root = join(folder, 'host')
  mkdirSync(root)
  const workspace = makeWorkspace(folder)
  const hub = await startHub({ dataDir })
  const store = openStore(dataDir)
  const apiKey = createKey(store, { name: 'operator' }).key
  const [signingSecret, pluginSecretKey] = [newSecret(), newSecret()]
  return {
    folder,
    hubUrl: hub.url,
    root,
    async publish(release) {
      const sources = join(folder, 'sources', `${release.slug}-${release.version}`)
      writeSources(release, sources)
      const { kind, slug, version } = release
      const repo = `example/${slug}@v${version}`
      return (await publishFolder(store, sources, { kind, slug, version, signingSecret, repo })).sha256
    },
    tamper: sha256 => flipOneBit(join(dataDir, 'artifacts', sha256)),
    deploy(kind, slug, plan) {
      cpSync(examplePlan(plan), join(workspace.path, PLAN))
      const secrets = { 'api-key': apiKey, 'signing-secret': signingSecret, 'plugin-secret-key': pluginSecretKey }
      const place = { 'hub-url': hub.url, 'project-root': root, 'host-id': HOST_ID, 'install-plan': PLAN }
      // The host framework's secret means nothing to a service.
      const inputs = kind === 'plugin' ? secrets : { ...secrets, 'plugin-secret-key': '' }
      return runAction({ workspace, inputs: { ...place, ...inputs, kind, slug } })
    },
    async readFleet(kind, slug) {
      const url = `${hub.url}/deployments/${kind}/${slug}/hosts`
      return (await (await fetch(url, { headers: { 'X-API-Key': apiKey } })).json()) as HostEntry[]
    },
    async close(keep) {
      await hub.close()
      store.close()
      if (!keep) rmSync(folder, { recursive: true, force: true })
    },
  }
}

function newSecret(): string {
  return randomBytes(24).toString('base64url')
}

function flipOneBit(path: string): void {
  const bytes = readFileSync(path)
  const middle = Math.floor(bytes.length / 2)
  bytes.writeUInt8(bytes.readUInt8(middle) ^ 1, middle)
  writeFileSync(path, bytes)
}
