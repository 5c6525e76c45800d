import { join } from 'node:path'
import { DeploymentError } from '../../../core/errors.ts'
import { lstatIfPresentSync } from '../../files/trees/tree-walk.ts'
import { auditPath, type Layout, renameProbePath, reservePath } from '../layout.ts'

/**
 * Checks that each directory or file with a fixed name in `.hub-deploy/`, except the kernel lock, is a directory or a
 * regular file, as this action created it. A missing path passes. Throws DeploymentError `host_not_writable`, which
 * names the obstructing path and says what to do.
 */
export function requireOwnKinds(layout: Layout): void {
  const { staging, snapshots, trees, reports, outbox, lock, journal, installed } = layout
  for (const path of [staging, renameProbePath(layout), snapshots, trees, reports, outbox]) requireOwnDirectory(path)
  for (const shelf of ['plugins', 'extensions', 'set-aside']) requireOwnDirectory(join(snapshots, shelf))
  for (const path of [lock, journal, installed, auditPath(layout), reservePath(layout)]) {
    if (lstatIfPresentSync(path)?.isFile() === false) throw inTheWay(path, 'a file')
  }
}

/** Does the same as `requireOwnKinds` for one directory. */
export function requireOwnDirectory(path: string): void {
  if (lstatIfPresentSync(path)?.isDirectory() === false) throw inTheWay(path, 'a directory')
}

function inTheWay(path: string, expected: string): DeploymentError {
  return new DeploymentError(
    'host_not_writable',
    `${path} must be ${expected} of this action, but something else is in its place. Move that away, restore ${path} if you have a copy, and run again.`,
  )
}
