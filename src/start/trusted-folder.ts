import { lstatSync, mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { decidersOf } from '../install/host/ownership/deciders.ts'
import { findExposureOf } from '../install/host/ownership/private-directory.ts'

/**
 * True if a folder is a real directory that belongs to us alone, in a place that only we and root can change. These are
 * the rules of `requireSafeHost` for `.hub-deploy/`, without the exception that an operator can make. Throws the
 * system's error if the folder cannot be examined.
 */
export function isTrustedFolder(path: string): boolean {
  const us = process.getuid?.()
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (us === undefined || found === undefined) return false
  return findExposureOf(found, us) === undefined && isDecidedByUs(dirname(path), us)
}

/** Like `isTrustedFolder`, but first creates a missing folder and its parents if nobody else can change their place. */
export function makeTrustedFolder(path: string): boolean {
  const us = process.getuid?.()
  if (us === undefined) return false
  if (isMissing(path) && makeWay(dirname(path), us)) mkdirSync(path, { mode: 0o700 })
  return isTrustedFolder(path)
}

function makeWay(folder: string, us: number): boolean {
  if (!isMissing(folder)) return isDecidedByUs(folder, us)
  if (!makeWay(dirname(folder), us)) return false
  mkdirSync(folder, { mode: 0o700 })
  return true
}

function isDecidedByUs(folder: string, us: number): boolean {
  return decidersOf(folder, us).every(({ isForeign, isOpen }) => !isForeign && !isOpen)
}

function isMissing(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) === undefined
}
