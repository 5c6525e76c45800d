import { lstatSync } from 'node:fs'
import { dirname } from 'node:path'
import { decidersOf } from '../install/host/ownership/deciders.ts'
import { findExposureOf } from '../install/host/ownership/private-directory.ts'

/**
 * Whether a folder is a real directory that is ours alone, and only we and root decide what is in its place: the same
 * rules as `requireSafeHost` has for `.hub-deploy/`, its root and all that leads there, without the exception that an
 * operator can make. Throws the system's error when it may not look.
 */
export function isTrustedFolder(path: string): boolean {
  const us = process.getuid?.()
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (us === undefined || found === undefined) return false
  const deciders = decidersOf(dirname(path), us)
  return findExposureOf(found, us) === undefined && deciders.every(({ isForeign, isOpen }) => !isForeign && !isOpen)
}
