import { randomUUID } from 'node:crypto'
import { readdir, realpath, rename, rm } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { syncFolder } from '../artifacts.ts'
import { HubError } from '../errors.ts'
import { makeFolder } from '../new-folder.ts'
import { DATABASE_FILE } from '../store.ts'

const REMAINS = '.restoring'

/** A folder to restore into, which becomes a hub's data folder only once it is settled. */
export interface NewDataFolder {
  /** The folder that receives the files before they are settled. */
  readonly staging: string
  /** Moves all files into place, durably. */
  readonly settle: () => Promise<void>
  /** Removes everything that was not settled. */
  readonly discard: () => Promise<void>
}

/**
 * Prepares a folder to restore into. A folder that does not exist yet appears complete or not at all. An existing
 * folder stays, because it may be a mount point or behind a symlink: `settle` moves the files into it, with the
 * database last. Throws HubError 409 if the folder is not empty, and 400 if it cannot be read.
 */
export async function newDataFolder(dataDir: string): Promise<NewDataFolder> {
  return (await isThere(dataDir)) ? inside(await realpath(dataDir)) : await nextTo(resolve(dataDir))
}

async function isThere(dataDir: string): Promise<boolean> {
  const found = await readdir(dataDir).catch(error => {
    if (error.code === 'ENOENT') return undefined
    throw new HubError(400, `${dataDir} cannot be read as a folder (${error.code}): name another one with --data.`)
  })
  // The root of a file system may contain lost+found.
  if (found === undefined || found.every(name => name === 'lost+found')) return found !== undefined
  const remains = found.filter(name => name.endsWith(REMAINS))
  if (remains.length > 0)
    throw new HubError(
      409,
      `The folder ${dataDir} contains the remains of a restore that was killed, which may include keys: remove ${remains.join(' and ')} from it, and restore again.`,
    )
  throw new HubError(
    409,
    `The folder ${dataDir} is not empty, and a restore replaces no files: name a new one with --data, or move this one away.`,
  )
}

function inside(folder: string): NewDataFolder {
  const staging = join(folder, `.${randomUUID()}${REMAINS}`)
  const placed: string[] = []
  const settle = async () => {
    const names = await readdir(staging)
    for (const name of [...names.filter(name => name !== DATABASE_FILE), DATABASE_FILE]) {
      await rename(join(staging, name), join(folder, name))
      placed.push(join(folder, name))
    }
    await syncFolder(folder)
    placed.length = 0
  }
  return { staging, settle, discard: () => removeAll([...placed, staging]) }
}

async function nextTo(target: string): Promise<NewDataFolder> {
  makeFolder(dirname(target))
  const staging = `${target}.${randomUUID()}${REMAINS}`
  const settle = async () => {
    await rename(staging, target)
    await syncFolder(dirname(target))
  }
  return { staging, settle, discard: () => removeAll([staging]) }
}

async function removeAll(paths: readonly string[]): Promise<void> {
  for (const path of paths) await rm(path, { recursive: true, force: true })
}
