import { UsageError } from '../../errors.ts'
import { type ProjectVersionId, revokeProjectVersion } from '../../project/catalogue.ts'
import { KEY_TITLES, revokeProject, revokeProjectKey } from '../../project/project-keys.ts'
import type { Store } from '../../store.ts'
import { type Command, DATA_OPTION, DATA_USAGE, withExistingStore } from '../command.ts'
import { parseCommandLine } from '../command-line.ts'

const OPTIONS = { ...DATA_OPTION, 'project-id': { type: 'string' }, version: { type: 'string' } } as const
type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

export const revoke: Command = {
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
  if (id !== undefined) return store => revokeKey(store, id)
  const project_id = projectId ?? ''
  if (version === undefined) return store => revokeKeys(store, project_id)
  return store => revokeVersion(store, { project_id, version })
}

function revokeKey(store: Store, id: string): string {
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
