import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import { publishFolder } from '../../hub/marketplace/publish.ts'
import { createProjectKey, revokeProjectKey } from '../../hub/project/keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { listDeployments, type StoredProjectReport } from '../../hub/project/reports.ts'
import { sealProject, signerPublicKey } from '../../hub/project/seal.ts'
import { type ActionResult, runAction } from '../../local/runner.ts'
import { type LocalStage, openLocalStage } from '../../local/stage.ts'

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

interface HostEntry {
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

const PROJECT_ID = 'prj_ShopExample01'
const MOST_REPORTS = 100

/** The actions of the publisher, the hub's administrator and the operator in the demo's project. */
interface DemoProject {
  /** Seals a release with the publisher's key and publishes it. */
  publish(release: ProjectRelease): Promise<void>
  /** Revokes the operator's deployment credential on the hub. */
  revokeCredential(): void
  /** Deploys the latest version with the project action from `dist/`. */
  deploy(): Promise<ActionResult>
  /** The reports that the hub has accepted, at most the newest 100, oldest first. */
  readReports(): StoredProjectReport[]
}

/** Opens the demo's project. `common` has the inputs that do not depend on the project. */
function openProject(stage: LocalStage, common: Readonly<Record<string, string>>): DemoProject {
  const { folder, store, workspace } = stage
  const { privateKey: signingKey } = generateKeyPairSync('ed25519')
  const newKey = (purpose: 'devkey' | 'credential') =>
    createProjectKey(store, { project_id: PROJECT_ID, purpose, name: 'operator' })
  const [devkey, credential] = [newKey('devkey'), newKey('credential')]
  const access = { devkey: devkey.value, 'deployment-credential': credential.value }
  const trust = { 'project-id': PROJECT_ID, 'signer-public-key': signerPublicKey(signingKey) }
  return {
    async publish(release) {
      const source = join(folder, 'sources', `${PROJECT_ID}-${release.version}`)
      writeSources(release, source)
      const { version } = release
      await publishProject(store, await sealProject({ source, projectId: PROJECT_ID, version, signingKey }))
    },
    revokeCredential: () => void revokeProjectKey(store, credential.record.id),
    deploy: () => runAction({ workspace, action: 'project', inputs: { ...common, ...access, ...trust } }),
    readReports: () => listDeployments(store, MOST_REPORTS).toReversed(),
  }
}

const EXAMPLES = resolve(import.meta.dirname, '../../examples')

/** Sources that start as a copy of `examples/<kind>`. */
interface Sources {
  kind: 'plugin' | 'service' | 'project'
  version: string
  /** Files that replace or extend the example: contents by path. */
  changes: Readonly<Record<string, string>>
}

interface Release extends Sources {
  kind: 'plugin' | 'service'
  slug: string
}

interface ProjectRelease extends Sources {
  kind: 'project'
}

export const GREETER = { kind: 'plugin', slug: 'greeter' } as const
export const CLOCK = { kind: 'service', slug: 'clock' } as const

export const RELEASES = {
  greeter1: { ...GREETER, version: '1.0.0', changes: {} },
  clock1: { ...CLOCK, version: '1.0.0', changes: {} },
  greeter11: {
    ...GREETER,
    version: '1.1.0',
    changes: {
      'plugin.yaml': pluginYaml('1.1.0'),
      'src/greeting.py': 'def greet(name: str) -> str:\n    return f"Good day, {name.strip() or \'world\'}!"\n',
      'src/farewell.py': 'def part(name: str) -> str:\n    return f"Goodbye, {name}!"\n',
    },
  },
  greeter12: { ...GREETER, version: '1.2.0', changes: { 'plugin.yaml': pluginYaml('1.2.0') } },
  greeter2: {
    ...GREETER,
    version: '2.0.0',
    changes: {
      'plugin.yaml': `${pluginYaml('2.0.0')}environment:\n  required: [GREETER_TOKEN]\n`,
      '.env.template': '# Settings of the greeter on this host\nGREETER_LANGUAGE=en\nGREETER_TOKEN=\n',
    },
  },
  shop1: { kind: 'project', version: '1.0.0', changes: {} },
  shop11: {
    kind: 'project',
    version: '1.1.0',
    changes: { 'extensions/mailer/run.sh': '#!/bin/sh\nexec python3 -u "$(dirname "$0")/mailer.py"\n' },
  },
} as const satisfies Record<string, Release | ProjectRelease>

/** Writes the sources of a release into `folder`. */
function writeSources(release: Sources, folder: string): void {
  cpSync(join(EXAMPLES, release.kind), folder, { recursive: true })
  for (const [path, text] of Object.entries(release.changes)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), text)
  }
}

/** The path of an example plan. */
function examplePlan(name: string): string {
  return join(EXAMPLES, name)
}

function pluginYaml(version: string): string {
  return `name: greeter\nversion: "${version}"\nexecution_mode: trusted\nentry_point: src/main.py\n`
}
