import { accessSync } from 'node:fs'

/** Whether this process may use a path so. `mode`: of `constants` in `node:fs`, such as `X_OK`. */
export function isAccessible(path: string, mode: number): boolean {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}
