import { accessSync } from 'node:fs'

/** True if this process may access a path in the given mode, which is a constant of `node:fs` such as `X_OK`. */
export function isAccessible(path: string, mode: number): boolean {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}
