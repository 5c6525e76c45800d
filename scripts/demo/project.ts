import { generateKeyPairSync } from 'node:crypto'
import { join } from 'node:path'
import { createProjectKey, revokeProjectKey } from '../../hub/project/project-keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { listDeployments, type StoredProjectReport } from '../../hub/project/reports.ts'
import { sealProject } from '../../hub/project/seal.ts'
import { signerPublicKey } from '../../hub/project/signing-key.ts'
import { type ActionResult, runAction } from '../../local/runner.ts'
import type { LocalStage } from '../../local/stage.ts'
import { type ProjectRelease, writeSources } from './releases.ts'

const PROJECT_ID = 'prj_ShopExample01'
const MOST_REPORTS = 100

/** The actions of the publisher, the hub's administrator and the operator in the demo's project. */
export interface DemoProject {
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
export function openProject(stage: LocalStage, common: Readonly<Record<string, string>>): DemoProject {
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
