import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { join } from 'node:path'
import { createProjectKey } from '../../../hub/project/keys.ts'
import { publishProject } from '../../../hub/project/publish.ts'
import { type SealedProject, type SealOptions, sealProject } from '../../../hub/project/seal.ts'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import { type LocalStage, openLocalStage, type StageOrigin } from '../../../local/stage.ts'
import { preparedOnce, writeFiles } from './stage.ts'

export const PROJECT_ID = 'shop'

/** A local stage on which a project is sealed, published and deployed. */
export interface ProjectStage extends LocalStage {
  readonly signingKey: KeyObject
  /** The public half of the signing key in base64. */
  readonly signerPublicKey: string
  readonly devkey: string
  readonly credential: string
  seal(version: string, files: Record<string, string>, options?: Partial<SealOptions>): Promise<SealedProject>
  publish(version: string, files: Record<string, string>, options?: Partial<SealOptions>): Promise<SealedProject>
  /** Runs the project action with the inputs that every run here needs, and with these. */
  deploy(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
}

export const PROJECT_PLAN = `format_version: "1"
project_id: ${PROJECT_ID}
version: "1"
steps:
  - {id: cart, action: install_plugin, plugin: cart, snapshot: true}
  - {id: till, action: install_plugin, plugin: till, depends_on: [cart]}
  - {id: mailer, action: install_extension, extension: mailer, depends_on: [till]}
`

/** The files of a small project: two plugins and an extension. */
export function projectFiles(version: string, more: Record<string, string> = {}): Record<string, string> {
  return {
    'plugins/cart/plugin.yaml': `name: cart\nversion: "${version}"\n`,
    'plugins/cart/src/main.py': `print("cart ${version}")\n`,
    'plugins/till/plugin.yaml': `name: till\nversion: "7.0.0"\n`,
    'plugins/till/src/main.py': `print("till in ${version}")\n`,
    'extensions/mailer/run.sh': `echo ${version}\n`,
    'deployment/install.yaml': PROJECT_PLAN,
    ...more,
  }
}

type ProjectKeys = Pick<ProjectStage, 'signingKey' | 'signerPublicKey' | 'devkey' | 'credential'>

/** Opens a stage, by default with an empty host; see also `preparedOnce`. */
export async function openProjectStage(origin?: StageOrigin & ProjectKeys): Promise<ProjectStage> {
  const stage = await openLocalStage('project-stage', origin)
  const { folder, hub, root, store, workspace } = stage
  const { signingKey, signerPublicKey, devkey, credential } = origin ?? newKeys(stage)
  let sealed = 0
  const seal: ProjectStage['seal'] = async (version, files, options = {}) => {
    const source = join(folder, `project-${++sealed}`)
    writeFiles(source, files)
    return sealProject({ source, projectId: PROJECT_ID, version, signingKey, ...options })
  }
  return {
    ...stage,
    signingKey,
    signerPublicKey,
    devkey,
    credential,
    seal,
    async publish(version, files, options) {
      const project = await seal(version, files, options)
      await publishProject(store, project)
      return project
    },
    deploy: (inputs = {}, run = {}) =>
      runAction({
        workspace,
        action: 'project',
        ...run,
        inputs: {
          'hub-url': hub.url,
          devkey,
          'project-id': PROJECT_ID,
          'deployment-credential': credential,
          'signer-public-key': signerPublicKey,
          'project-root': root,
          'host-id': 'host-1',
          ...inputs,
        },
      }),
  }
}

/** Opens a stage with these versions installed, one after the other. */
export async function openShop(versions: Readonly<Record<string, Record<string, string>>>): Promise<ProjectStage> {
  const origin = await preparedOnce(JSON.stringify(versions), async () => {
    const stage = await openProjectStage()
    for (const [version, files] of Object.entries(versions)) {
      await stage.publish(version, files)
      const { exitCode, log } = await stage.deploy()
      if (exitCode !== 0) throw new Error(log)
    }
    return stage
  })
  return await openProjectStage(origin)
}

function newKeys({ store }: LocalStage): ProjectKeys {
  const { privateKey: signingKey, publicKey } = generateKeyPairSync('ed25519')
  const signerPublicKey = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('base64')
  const newValue = (purpose: 'devkey' | 'credential'): string =>
    createProjectKey(store, { project_id: PROJECT_ID, purpose, name: 'test' }).value
  return { signingKey, signerPublicKey, devkey: newValue('devkey'), credential: newValue('credential') }
}

const INSTALLING: Readonly<Record<string, string>> = {
  cart: 'action: install_plugin, plugin: cart',
  till: 'action: install_plugin, plugin: till',
  mailer: 'action: install_extension, extension: mailer',
}

export interface Parts {
  /** The parts among `cart`, `till` and `mailer`; default all. */
  included?: readonly string[]
  /** True to retain replaced and removed versions; default true. */
  snapshot?: boolean
  /** Further steps of the plan: s1, s2, ..., each after the previous one. */
  steps?: readonly string[]
  more?: Record<string, string>
}

/** The files of one version of the small project, with all or some of its three parts. */
export function filesWith(version: string, parts: Parts = {}): Record<string, string> {
  const { included = Object.keys(INSTALLING), more = {} } = parts
  const isIncluded = ([path]: [string, string]): boolean => included.includes(path.split('/')[1] ?? '')
  const files = Object.fromEntries(Object.entries(projectFiles(version)).filter(isIncluded))
  return { ...files, 'deployment/install.yaml': planOf(included, parts), ...more }
}

function planOf(included: readonly string[], { snapshot = true, steps = [] }: Parts): string {
  const installing = included.map(id => `  - {id: ${id}, snapshot: ${snapshot}, ${INSTALLING[id]}}\n`)
  const ids = [included.join(', '), ...steps.map((_, index) => `s${index + 1}`)]
  const following = steps.map((step, index) => `  - {id: s${index + 1}, depends_on: [${ids[index]}], ${step}}\n`)
  const head = `format_version: "1"\nproject_id: ${PROJECT_ID}\nversion: "1"\nsteps:\n`
  return [head, ...installing, ...following].join('')
}
