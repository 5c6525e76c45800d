import { listProjects, type Project, type ProjectVersion } from '../../project/catalogue.ts'
import { listProjectKeys, type ProjectKey } from '../../project/project-keys.ts'
import { listCommand } from '../list-command.ts'

const PROJECT_HEADING = ['PROJECT', 'NAME', 'LATEST', 'VERSIONS']
const VERSION_HEADING = ['PROJECT', 'VERSION', 'STATE', 'PUBLISHED', 'SHA-256', 'SIGNED BY']
const KEY_HEADING = ['ID', 'KIND', 'PREFIX', 'PROJECT', 'NAME', 'STATE', 'LAST USED']

export const list = listCommand({
  name: 'project list',
  summary: 'lists the projects',
  heading: PROJECT_HEADING,
  find: listProjects,
  toRow: projectRow,
})

export const versions = listCommand({
  name: 'project versions',
  summary: 'lists the published versions',
  heading: VERSION_HEADING,
  find: store => listProjects(store).flatMap(project => project.versions),
  toRow: versionRow,
})

export const keys = listCommand({
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
