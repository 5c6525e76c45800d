import { UsageError } from '../../errors.ts'
import { type ProjectVersionId, revokeProjectVersion } from '../../project/catalogue.ts'
import { KEY_TITLES, revokeProject, revokeProjectKey } from '../../project/project-keys.ts'
import type { Store } from '../../store.ts'
import { type Command, DATA_OPTION, DATA_USAGE, parseCommandLine, withExistingStore } from '../command.ts'

const OPTIONS = { ...DATA_OPTION, 'project-id': { type: 'string' }, version: { type: 'string' } } as const
type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

export const revoke: Command = {
  summary: 'revokes a dev key, a credential, a version, or all keys of a project',
  usage: `npm run hub -- project revoke ID [options]
npm run hub -- project revoke --project-id P --version V [options]
npm run hub -- project revoke --project-id P [options]

  ID               a dev key or deployment credential, as "project keys" lists it
  --project-id P   alone: every dev key and deployment credential that the project has now
  --version V      this version only: its key is not released any more
${DATA_USAGE}

It takes effect at once, also for a hub that is running: the next deployment gets no key. Nothing is taken from hosts.`,
  run: async args => {
    const { values, positionals } = parseCommandLine(args, OPTIONS, 1)
    console.log(await withExistingStore(values.data, chooseRevocation(positionals[0], values)))
  },
}

/** Revokes, and returns a sentence that says so. */
type Revocation = (store: Store) => string

function chooseRevocation(id: string | undefined, { 'project-id': projectId, version }: Values): Revocation {
  if ((id === undefined) === (projectId === undefined) || (id !== undefined && version !== undefined)) {
    throw new UsageError('What to revoke is given by an ID, or by --project-id, alone or with --version.')
  }
  if (id !== undefined) return store => revokeKey(store, id)
  const project_id = projectId ?? ''
  if (version === undefined) return store => revokeKeys(store, project_id)
  return store => revokeVersion(store, { project_id, version })
}

function revokeKey(store: Store, id: string): string {
  const { purpose, name, project_id } = revokeProjectKey(store, id)
  return `The ${KEY_TITLES[purpose]} ${id} (${name}) of the project ${project_id} is revoked.`
}

function revokeKeys(store: Store, projectId: string): string {
  const revoked = revokeProject(store, projectId)
  return `Every dev key and deployment credential of the project ${projectId} is revoked (${revoked.length} just now).`
}

function revokeVersion(store: Store, id: ProjectVersionId): string {
  revokeProjectVersion(store, id)
  return `Version ${id.version} of the project ${id.project_id} is revoked.`
}
