import { constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { isAccessible } from './is-accessible.ts'

/** Returns the path of a program in the first folder of PATH that contains it; undefined if no folder does. */
export function findProgram(name: string): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter(folder => folder !== '')
  return folders.map(folder => join(folder, name)).find(path => isAccessible(path, constants.X_OK))
}
