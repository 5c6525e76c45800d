import { createHash, type KeyObject, randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { z } from 'zod'
import { HubError, UsageError } from '../../hub/errors.ts'
import { makeFolder } from '../../hub/files.ts'
import { isListed, readListing } from '../../hub/marketplace/catalogue.ts'
import { publishFolder } from '../../hub/marketplace/publish.ts'
import { findProjectVersion } from '../../hub/project/catalogue.ts'
import { createProjectKey } from '../../hub/project/keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { createSigningKey, readSigningKey, sealProject, signerPublicKey } from '../../hub/project/seal.ts'
import { readSourceTree } from '../../hub/project/source-tree.ts'
import type { Store } from '../../hub/store.ts'
import { type ActionResult, runAction } from '../../local/runner.ts'
import { type LocalStage, openLocalStage, openStageIn } from '../../local/stage.ts'
import { copyWithBrokenStep, type OperatorFile } from './operator-files.ts'
import { howToRaise, type Part, type Project, type Sources } from './sources.ts'

const SECRETS_FILE = 'secrets.json'
const SECRET_BYTES = 24
/** No workflow runs here, so no report may link to one. */
const NO_WORKFLOW = Object.fromEntries(
  ['ACTOR', 'JOB', 'REPOSITORY', 'RUN_ATTEMPT', 'RUN_ID', 'WORKFLOW'].map(name => [`GITHUB_${name}`, undefined]),
)

const secretsSchema = z.object({ apiKey: z.string(), signingSecret: z.string(), pluginSecretKey: z.string() })
type Secrets = Readonly<z.infer<typeof secretsSchema>>

/** A hub and a host. */
export interface TryStage {
  readonly hubUrl: string
  /** The folder with the hub and the host. */
  readonly folder: string
  /** The host's project root, inside `folder`. */
  readonly root: string
  /**
   * Signs and publishes the sources. With `isBroken`, the plan of a published project gets an additional step, which
   * fails. Throws as `publishFolder` and `releaseProject` do.
   */
  publish(sources: Sources, isBroken: boolean): Promise<Published>
  /** Deploys the version of the sources with the deploy or the project action from `dist/`. */
  deploy(sources: Sources, choices: DeployChoices): Promise<ActionResult>
  /** Stops the hub. Removes the folder unless the caller named it. */
  close(): Promise<void>
}

interface DeployChoices {
  readonly files: readonly OperatorFile[]
  /** Lines `NAME=value`. */
  readonly settings: readonly string[]
  readonly onStart: (pid: number) => void
  readonly onLog: (text: string) => void
}

/**
 * Starts a hub on loopback. With `named`, the hub and the host are in that folder and stay there. The next stage in the
 * same folder continues with them. Throws UsageError if the folder has any other content or cannot be used.
 */
export async function openTryStage(named: string | undefined): Promise<TryStage> {
  const [stage, secrets] = named === undefined ? await openTemporary() : await openNamed(named)
  const { folder, hub, root, workspace } = stage
  return {
    hubUrl: hub.url,
    folder,
    root,
    async publish(sources, isBroken) {
      if (sources.kind !== 'project') return await publishPart(stage, secrets, sources)
      if (!isBroken) return await releaseProject(stage, sources, sources.folder)
      const copy = join(dirname(workspace.path), 'broken')
      copyWithBrokenStep(sources, copy)
      return await releaseProject(stage, sources, copy)
    },
    async deploy(sources, { files, settings, onStart, onLog }) {
      mkdirSync(join(workspace.path, 'deploy'))
      for (const { path, text } of files) writeFileSync(join(workspace.path, path), text)
      const inputs = {
        'hub-url': hub.url,
        ...(sources.kind === 'project'
          ? { ...projectAccess(stage, sources), ...sourceAccess(hub.url, secrets) }
          : partAccess(secrets, sources)),
        'plugin-secret-key': sources.kind === 'service' ? '' : secrets.pluginSecretKey,
        'project-root': root,
        settings: settings.join('\n'),
        ...Object.fromEntries(files.map(({ input, path }) => [input, path])),
      }
      const action = sources.kind === 'project' ? 'project' : '.'
      return await runAction({ action, workspace, inputs, env: NO_WORKFLOW, onStart, onLog })
    },
    async close() {
      await stage.close(named !== undefined)
      rmSync(dirname(workspace.path), { recursive: true, force: true })
    },
  }
}

async function openTemporary(): Promise<[LocalStage, Secrets]> {
  const stage = await openLocalStage('hub-deploy-try')
  return [stage, newSecrets(stage.apiKey)]
}

async function openNamed(folder: string): Promise<[LocalStage, Secrets]> {
  const path = join(folder, SECRETS_FILE)
  if (existsSync(path)) {
    const secrets = readSecrets(path)
    return [await openStageIn(folder, secrets.apiKey), secrets]
  }
  if (namesInNewFolder(folder).length > 0)
    throw new UsageError(`The folder ${folder} of --root contains other files: name a new or an empty one.`)
  const stage = await openStageIn(folder)
  const secrets = newSecrets(stage.apiKey)
  writeFileSync(path, JSON.stringify(secrets), { mode: 0o600 })
  return [stage, secrets]
}

/** Creates the folder if necessary, and returns the names in it. Throws UsageError if that fails. */
function namesInNewFolder(folder: string): string[] {
  try {
    makeFolder(folder, 0o700)
    return readdirSync(folder)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new UsageError(`${folder} cannot be the folder of --root (${code}): name a new or an empty one.`)
  }
}

async function publishPart({ store }: LocalStage, { signingSecret }: Secrets, part: Part): Promise<Published> {
  const { folder, kind, slug, version } = part
  return await publishFolder(store, folder, { kind, slug, version, signingSecret }).catch(error => {
    throw error instanceof HubError && error.status === 409 && isPublished(store, part) ? alreadyPublished(part) : error
  })
}

function isPublished(store: Store, { version, ...id }: Part): boolean {
  return isListed(store, id) && readListing(store, id).versions.some(published => published.version === version)
}

function partAccess({ apiKey, signingSecret }: Secrets, { kind, slug, version }: Part): Record<string, string> {
  return { kind, slug, version, 'api-key': apiKey, 'signing-secret': signingSecret }
}

/** A project may take parts from a marketplace. The hub of the stage is also a marketplace. */
function sourceAccess(hubUrl: string, { apiKey, signingSecret }: Secrets): Record<string, string> {
  return { 'sources-hub-url': hubUrl, 'sources-api-key': apiKey, 'sources-signing-secret': signingSecret }
}

function readSecrets(path: string): Secrets {
  try {
    return secretsSchema.parse(JSON.parse(readFileSync(path, 'utf8')))
  } catch {
    throw new UsageError(`${path} cannot be read as the secrets of an earlier run: name another folder with --root.`)
  }
}

function newSecrets(apiKey: string): Secrets {
  const newSecret = (): string => randomBytes(SECRET_BYTES).toString('base64url')
  return { apiKey, signingSecret: newSecret(), pluginSecretKey: newSecret() }
}

const SIGNING_KEY_FILE = 'signing-key.pem'
const CONTENTS_FILE = 'projects.json'

const contentsSchema = z.record(z.string(), z.string())

/**
 * Seals and publishes the sources in a folder as the project's version. Sealing the same files again produces different
 * bytes, so the stage records what it has sealed: a version with the same files counts as published. Throws HubError as
 * sealProject and publishProject do, and 409 if the version is already published with different files.
 */
export async function releaseProject(stage: LocalStage, project: Project, source: string): Promise<Published> {
  const { slug: project_id, version, pluginsDirname } = project
  const contents = readContents(stage)
  const name = `${project_id} ${version}`
  const content = hashOfSource(source, pluginsDirname)
  const there = findProjectVersion(stage.store, { project_id, version })
  if (there !== undefined && contents[name] === content) return { ...there, leftOut: [] }
  if (there !== undefined) throw alreadyPublished(project)
  const sealed = await sealProject({ source, version, pluginsDirname, signingKey: signingKeyOf(stage) })
  const { size, sha256 } = await publishProject(stage.store, sealed)
  writeFileSync(join(stage.folder, CONTENTS_FILE), JSON.stringify({ ...contents, [name]: content }))
  return { size, sha256, leftOut: sealed.leftOut }
}

/** The inputs of the project action that the publisher and the hub's administrator give the operator. */
export function projectAccess(stage: LocalStage, { slug: project_id, version }: Project): Record<string, string> {
  const newKey = (purpose: 'devkey' | 'credential'): string =>
    createProjectKey(stage.store, { project_id, purpose, name: 'operator' }).value
  return {
    'project-id': project_id,
    version,
    devkey: newKey('devkey'),
    'deployment-credential': newKey('credential'),
    'signer-public-key': signerPublicKey(signingKeyOf(stage)),
  }
}

function signingKeyOf({ folder }: LocalStage): KeyObject {
  const path = join(folder, SIGNING_KEY_FILE)
  return existsSync(path) ? readSigningKey(path) : createSigningKey(path)
}

function readContents({ folder }: LocalStage): Record<string, string> {
  const path = join(folder, CONTENTS_FILE)
  return existsSync(path) ? contentsSchema.parse(JSON.parse(readFileSync(path, 'utf8'))) : {}
}

/** A digest of all files that would be sealed, with their execute permission. */
function hashOfSource(source: string, pluginsDirname: string): string {
  const { members } = readSourceTree(source, pluginsDirname)
  const sealed = [...members.values()].map(member => ({ ...member, source: undefined }))
  return createHash('sha256').update(JSON.stringify(sealed)).digest('hex')
}

/** A published version. */
export interface Published {
  readonly size: number
  readonly sha256: string
  readonly leftOut: readonly string[]
}

/** Builds a HubError 409 that says where to raise the version. */
function alreadyPublished(sources: Pick<Sources, 'slug' | 'version' | 'versionFile'>): HubError {
  const sentence = `This hub has ${sources.slug} ${sources.version} with different files, and a published version never changes`
  return new HubError(409, `${sentence}: raise the version (${howToRaise(sources)}).`)
}
