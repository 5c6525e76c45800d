import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'

/** The reason to skip a test if one of these programs is not installed; false if all are. */
export function missingTools(...tools: string[]): string | false {
  const missing = tools.filter(tool => !isInstalled(tool))
  return missing.length > 0 && `needs ${missing.join(', ')}`
}

function isInstalled(tool: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some(folder => isExecutable(join(folder, tool)))
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}
