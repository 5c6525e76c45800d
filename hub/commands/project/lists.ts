import { listProjects, type ProjectVersion } from '../../project/catalogue.ts'
import { listProjectKeys, type ProjectKey } from '../../project/project-keys.ts'
import { type Command, DATA_USAGE, printList } from '../command.ts'

const VERSION_HEADING = ['PROJECT', 'VERSION', 'STATE', 'PUBLISHED', 'SHA-256', 'SIGNED BY']
const KEY_HEADING = ['ID', 'KIND', 'PREFIX', 'PROJECT', 'NAME', 'STATE', 'LAST USED']

export const versions: Command = {
  summary: 'lists the published versions',
  usage: `npm run hub -- project versions [options]

${DATA_USAGE}`,
  run: args =>
    printList(args, VERSION_HEADING, store => listProjects(store).flatMap(project => project.versions), versionRow),
}

export const keys: Command = {
  summary: 'lists dev keys and deployment credentials, without their values',
  usage: `npm run hub -- project keys [options]

${DATA_USAGE}`,
  run: args => printList(args, KEY_HEADING, listProjectKeys, keyRow),
}

function versionRow({ project_id, version, revoked_at, published_at, sha256, signer_public_key }: ProjectVersion) {
  return [project_id, version, revoked_at === null ? 'served' : 'revoked', published_at, sha256, signer_public_key]
}

function keyRow({ id, purpose, prefix, project_id, name, is_active, last_used_at }: ProjectKey): string[] {
  return [id, purpose, prefix, project_id, name, is_active ? 'active' : 'revoked', last_used_at ?? 'never']
}
