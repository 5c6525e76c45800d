import { randomBytes } from 'node:crypto'
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import { publishFolder } from '../../hub/marketplace/publish.ts'
import { type ActionResult, runAction } from '../../local/runner.ts'
import { type LocalStage, openLocalStage } from '../../local/stage.ts'
import { type DemoProject, openProject } from './project.ts'
import { examplePlan, type Release, writeSources } from './releases.ts'

const HOST_ID = 'app-1'
const PLAN = 'deploy/install.yaml'

/** A local stage with the actions of the demo. */
export interface DemoStage extends LocalStage {
  /** Signs and publishes a release. Returns the SHA-256 of its artifact. */
  publish(release: Release): Promise<string>
  /** Flips one bit of an artifact on the hub's disk. */
  tamper(sha256: string): void
  /** Runs the deploy action in `dist/` to deploy the latest version; `plan` is the name of an example plan. */
  deploy(listing: ListingId, plan: string): Promise<ActionResult>
  /** The hub's fleet view (contract 4.1) of one plugin or service. */
  readFleet(listing: ListingId): Promise<HostEntry[]>
  readonly project: DemoProject
}

export interface HostEntry {
  kind: string
  slug: string
  host_id: string
  version: string
  status: string
}

export async function openStage(): Promise<DemoStage> {
  const stage = await openLocalStage('hub-deploy-demo')
  const { folder, hub, dataDir, store, apiKey, root, workspace } = stage
  const [signingSecret, pluginSecretKey] = [newSecret(), newSecret()]
  const place = { 'hub-url': hub.url, 'project-root': root, 'host-id': HOST_ID }
  return {
    ...stage,
    project: openProject(stage, { ...place, 'plugin-secret-key': pluginSecretKey }),
    async publish(release) {
      const sources = join(folder, 'sources', `${release.slug}-${release.version}`)
      writeSources(release, sources)
      const { kind, slug, version } = release
      const repo = `example/${slug}@v${version}`
      return (await publishFolder(store, sources, { kind, slug, version, signingSecret, repo })).sha256
    },
    tamper: sha256 => flipOneBit(join(dataDir, 'artifacts', sha256)),
    deploy({ kind, slug }, plan) {
      cpSync(examplePlan(plan), join(workspace.path, PLAN))
      const secrets = { 'api-key': apiKey, 'signing-secret': signingSecret, 'plugin-secret-key': pluginSecretKey }
      // A service has no plugin.sig, so it needs no plugin-secret-key.
      const inputs = kind === 'plugin' ? secrets : { ...secrets, 'plugin-secret-key': '' }
      return runAction({ workspace, inputs: { ...place, ...inputs, 'install-plan': PLAN, kind, slug } })
    },
    async readFleet({ kind, slug }) {
      const url = `${hub.url}/deployments/${kind}/${slug}/hosts`
      return (await (await fetch(url, { headers: { 'X-API-Key': apiKey } })).json()) as HostEntry[]
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
