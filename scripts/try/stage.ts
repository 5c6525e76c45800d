import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { z } from 'zod'
import { HubError, UsageError } from '../../hub/errors.ts'
import { publishFolder } from '../../hub/marketplace/publish.ts'
import { type ActionResult, runAction } from '../../local/runner.ts'
import { type LocalStage, openLocalStage, openStageIn } from '../../local/stage.ts'
import type { OperatorFile } from './operator-files.ts'
import { howToRaise, type Part } from './part.ts'

const SECRETS_FILE = 'secrets.json'
const SECRET_BYTES = 24
/** No workflow runs here, so no report may link to one. */
const NO_WORKFLOW = Object.fromEntries(
  ['ACTOR', 'JOB', 'REPOSITORY', 'RUN_ATTEMPT', 'RUN_ID', 'WORKFLOW'].map(name => [`GITHUB_${name}`, undefined]),
)

const secretsSchema = z.object({ apiKey: z.string(), signingSecret: z.string(), pluginSecretKey: z.string() })
type Secrets = Readonly<z.infer<typeof secretsSchema>>

/** A hub and a host for one part. */
export interface TryStage {
  readonly hubUrl: string
  /** The folder with everything, and the host's project root in it. */
  readonly folder: string
  readonly root: string
  /** Signs and publishes the part's folder. Throws as `publishFolder` does. */
  publish(part: Part): Promise<Published>
  /** Deploys the part's version with the deploy action from `dist/`. */
  deploy(part: Part, choices: DeployChoices): Promise<ActionResult>
  /** Stops the hub. Removes the folder unless the caller named it. */
  close(): Promise<void>
}

export interface Published {
  readonly size: number
  readonly sha256: string
  readonly leftOut: readonly string[]
}

export interface DeployChoices {
  readonly files: readonly OperatorFile[]
  /** Lines `NAME=value`. */
  readonly settings: readonly string[]
  readonly onStart: (pid: number) => void
  readonly onLog: (text: string) => void
}

/**
 * Starts a hub on loopback. With `named`, the hub and the host are in that folder and stay there, and the next stage in
 * the same folder continues with them. Throws UsageError if the folder has any other content.
 */
export async function openTryStage(named: string | undefined): Promise<TryStage> {
  const [stage, secrets] = named === undefined ? await openTemporary() : await openNamed(named)
  const { folder, hub, store, root, workspace } = stage
  return {
    hubUrl: hub.url,
    folder,
    root,
    async publish({ folder: source, kind, slug, version }) {
      const { signingSecret } = secrets
      return await publishFolder(store, source, { kind, slug, version, signingSecret }).catch(error => {
        throw error instanceof HubError && error.status === 409 ? alreadyPublished({ kind, slug, version }) : error
      })
    },
    async deploy({ kind, slug, version }, { files, settings, onStart, onLog }) {
      mkdirSync(join(workspace.path, 'deploy'))
      for (const { path, text } of files) writeFileSync(join(workspace.path, path), text)
      const inputs = {
        'hub-url': hub.url,
        'api-key': secrets.apiKey,
        'signing-secret': secrets.signingSecret,
        'plugin-secret-key': kind === 'plugin' ? secrets.pluginSecretKey : '',
        kind,
        slug,
        version,
        'project-root': root,
        settings: settings.join('\n'),
        ...Object.fromEntries(files.map(({ input, path }) => [input, path])),
      }
      return await runAction({ workspace, inputs, env: NO_WORKFLOW, onStart, onLog })
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
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  if (readdirSync(folder).length > 0)
    throw new UsageError(`The folder ${folder} of --root contains other files: name a new or an empty one.`)
  const stage = await openStageIn(folder)
  const secrets = newSecrets(stage.apiKey)
  writeFileSync(path, JSON.stringify(secrets), { mode: 0o600 })
  return [stage, secrets]
}

function alreadyPublished({ kind, slug, version }: Pick<Part, 'kind' | 'slug' | 'version'>): HubError {
  const sentence = `This hub has ${slug} ${version} with other files, and a version never changes`
  return new HubError(409, `${sentence}: raise it (${howToRaise({ kind, version })}).`)
}

function readSecrets(path: string): Secrets {
  try {
    return secretsSchema.parse(JSON.parse(readFileSync(path, 'utf8')))
  } catch {
    throw new UsageError(`${path} cannot be used: name another folder with --root.`)
  }
}

function newSecrets(apiKey: string): Secrets {
  const newSecret = (): string => randomBytes(SECRET_BYTES).toString('base64url')
  return { apiKey, signingSecret: newSecret(), pluginSecretKey: newSecret() }
}
