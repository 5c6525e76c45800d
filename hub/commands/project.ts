import { UsageError } from '../errors.ts'
import { labelSchema } from '../names.ts'
import {
  createProject,
  listProjects,
  type Project,
  type ProjectVersion,
  type ProjectVersionId,
  requireProject,
  revokeProjectVersion,
} from '../project/catalogue.ts'
import {
  createProjectKey,
  KEY_TITLES,
  listProjectKeys,
  type ProjectKey,
  type Purpose,
  revokeProject,
  revokeProjectKey,
} from '../project/keys.ts'
import type { Store } from '../store.ts'
import {
  type Command,
  type CommandGroup,
  DATA_OPTION,
  DATA_USAGE,
  listCommand,
  SILENT_USAGE,
  withExistingStore,
  withStore,
} from './command.ts'
import { parseCommandLine, requireForm, requireOption } from './command-line.ts'
import { keygen, publishRelease, seal } from './project-release.ts'

const create: Command = {
  summary: 'creates a project and prints its id',
  usage: `npm run hub -- project create --name N [options]

  --name N         the display name
${DATA_USAGE}

Standard output gets the id and nothing else. Use it as project_id in deployment/install.yaml, and as --project-id.
${SILENT_USAGE}`,
  run: async args => {
    const { values } = parseCommandLine(args, { ...DATA_OPTION, name: { type: 'string' } })
    const name = requireOption('name', values.name)
    requireForm('name', name, labelSchema)
    console.log((await withStore(values.data, store => createProject(store, name))).project_id)
  },
}

const PROJECT_HEADING = ['PROJECT', 'NAME', 'LATEST', 'VERSIONS']
const VERSION_HEADING = ['PROJECT', 'VERSION', 'STATE', 'PUBLISHED', 'SHA-256', 'SIGNED BY']
const KEY_HEADING = ['ID', 'KIND', 'PREFIX', 'PROJECT', 'NAME', 'STATE', 'LAST USED']

const list = listCommand({
  name: 'project list',
  summary: 'lists the projects',
  heading: PROJECT_HEADING,
  find: listProjects,
  toRow: projectRow,
})

const projectVersions = listCommand({
  name: 'project versions',
  summary: 'lists the published versions',
  heading: VERSION_HEADING,
  find: store => listProjects(store).flatMap(project => project.versions),
  toRow: versionRow,
})

const projectKeys = listCommand({
  name: 'project keys',
  summary: 'lists dev keys and deployment credentials, without their values',
  heading: KEY_HEADING,
  find: listProjectKeys,
  toRow: keyRow,
})

function projectRow({ project_id, name, versions }: Project): string[] {
  const latest = versions.find(({ revoked_at }) => revoked_at === null)?.version
  return [project_id, name ?? '-', latest ?? 'none', String(versions.length)]
}

function versionRow({ project_id, version, revoked_at, published_at, sha256, signer_public_key }: ProjectVersion) {
  return [project_id, version, revoked_at === null ? 'served' : 'revoked', published_at, sha256, signer_public_key]
}

function keyRow({ id, purpose, prefix, project_id, name, is_active, last_used_at }: ProjectKey): string[] {
  return [id, purpose, prefix, project_id, name, is_active ? 'active' : 'revoked', last_used_at ?? 'never']
}

const PUBLISH_USAGE = `
  --publish        lets the key publish versions too: for a publisher's machine, not for hosts`

const devkey: Command = issuing('devkey', {
  summary: 'creates a dev key, which a workflow needs to log in',
  input: 'devkey',
  canPublish: true,
})

const credential: Command = issuing('credential', {
  summary: 'creates a deployment credential, which unlocks sealed versions',
  input: 'deployment-credential',
})

interface Issuing {
  readonly summary: string
  /** The name of the project action's input for the key. */
  readonly input: string
  /** True if the command has the option --publish, for a key that can also publish. */
  readonly canPublish?: boolean
}

function issuing(purpose: 'devkey' | 'credential', { summary, input, canPublish = false }: Issuing): Command {
  return {
    summary,
    usage: `npm run hub -- project ${purpose} --project-id P --name N [options]

  --project-id P   the project that the ${KEY_TITLES[purpose]} is bound to
  --name N         what the ${KEY_TITLES[purpose]} is for${canPublish ? PUBLISH_USAGE : ''}
${DATA_USAGE}

Standard output gets the value, for the input ${input}, and nothing else. The hub cannot show it again.
${SILENT_USAGE}`,
    run: async args => {
      const options = { 'project-id': { type: 'string' }, name: { type: 'string' } } as const
      const publish = canPublish ? ({ publish: { type: 'boolean', default: false } } as const) : {}
      const { values } = parseCommandLine(args, { ...DATA_OPTION, ...options, ...publish })
      const project_id = requireOption('project-id', values['project-id'])
      const issued: Purpose = values.publish === true ? 'publisher' : purpose
      const name = requireOption('name', values.name)
      requireForm('name', name, labelSchema)
      const request = { project_id, purpose: issued, name }
      const { value, record } = await withExistingStore(values.data, store => {
        requireProject(store, project_id)
        return createProjectKey(store, request)
      })
      console.error(
        `Created the ${KEY_TITLES[purpose]} ${record.id} for the project ${project_id}. Save it now, because the hub cannot show it again:`,
      )
      console.log(value)
    },
  }
}

const OPTIONS = { ...DATA_OPTION, 'project-id': { type: 'string' }, version: { type: 'string' } } as const
type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

const revoke: Command = {
  summary: 'revokes a key, a credential, a version, or all keys and credentials of a project',
  usage: `npm run hub -- project revoke ID [options]
npm run hub -- project revoke --project-id P --version V [options]
npm run hub -- project revoke --project-id P [options]

  ID               a dev key or deployment credential, from "project keys"
  --project-id P   without --version: every dev key and deployment credential of the project
  --version V      this version only: the hub no longer releases its key
${DATA_USAGE}

Revoking takes effect at once, even on a running hub: the next deployment gets no key. Hosts keep what they installed.`,
  run: async args => {
    const { values, positionals } = parseCommandLine(args, OPTIONS, 1)
    console.log(await withExistingStore(values.data, chooseRevocation(positionals[0], values)))
  },
}

/** Revokes the chosen keys or version, and returns a sentence that says so. */
type Revocation = (store: Store) => string

function chooseRevocation(id: string | undefined, { 'project-id': projectId, version }: Values): Revocation {
  if ((id === undefined) === (projectId === undefined) || (id !== undefined && version !== undefined)) {
    throw new UsageError('Name what to revoke: an ID, --project-id alone, or --project-id with --version.')
  }
  if (id !== undefined) return store => revokeKeyOfProject(store, id)
  const project_id = projectId ?? ''
  if (version === undefined) return store => revokeKeys(store, project_id)
  return store => revokeVersion(store, { project_id, version })
}

function revokeKeyOfProject(store: Store, id: string): string {
  const { purpose, name, project_id } = revokeProjectKey(store, id)
  return `Revoked the ${KEY_TITLES[purpose]} ${id} (${name}) of the project ${project_id}.`
}

function revokeKeys(store: Store, projectId: string): string {
  const revoked = revokeProject(store, projectId)
  const active = `${revoked.length} ${revoked.length === 1 ? 'was' : 'were'} active`
  return `Revoked all dev keys and deployment credentials of the project ${projectId} (${active}).`
}

function revokeVersion(store: Store, id: ProjectVersionId): string {
  revokeProjectVersion(store, id)
  return `Revoked version ${id.version} of the project ${id.project_id}.`
}

export const project: CommandGroup = {
  name: 'npm run hub -- project',
  summary: 'seals, publishes and revokes projects: sets of plugins and extensions',
  commands: {
    create,
    list,
    keygen,
    seal,
    publish: publishRelease,
    versions: projectVersions,
    devkey,
    credential,
    keys: projectKeys,
    revoke,
  },
}
