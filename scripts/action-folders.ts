import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'

/** The folders that contain an action.yml, relative to the repository, with `.` first. */
export function actionFolders(repository: string): string[] {
  const folders = readdirSync(repository, { withFileTypes: true }).filter(entry => entry.isDirectory())
  return ['.', ...folders.map(({ name }) => name)].filter(folder => existsSync(join(repository, folder, 'action.yml')))
}
