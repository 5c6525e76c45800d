import { constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { isAccessible } from './is-accessible.ts'

/** The path of a program in the first folder of PATH that has it; undefined if none has. */
export function findProgram(name: string): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter(folder => folder !== '')
  return folders.map(folder => join(folder, name)).find(path => isAccessible(path, constants.X_OK))
}
