import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { HubError } from '../../errors.ts'
import { parseInput } from '../../names.ts'
import { releaseSchema, type SealedRelease } from '../../project/publish.ts'

/** The file next to a sealed file that publishing needs. It contains the DEK. */
export function releasePath(file: string): string {
  return `${file}.release.json`
}

/**
 * Writes a sealed file, and next to it its release, which only the user can read. Throws HubError 400 if one of the two
 * files already exists.
 */
export function writeSealedFile(file: string, { bytes, release }: SealedRelease): void {
  const taken = [file, releasePath(file)].find(path => existsSync(path))
  if (taken !== undefined) throw new HubError(400, `The file ${taken} already exists: choose another --out.`)
  try {
    writeFileSync(releasePath(file), `${JSON.stringify(release, null, 2)}\n`, { mode: 0o600, flag: 'wx' })
    writeFileSync(file, bytes, { flag: 'wx' })
  } catch (error) {
    rmSync(releasePath(file), { force: true })
    throw error
  }
}

/** Throws HubError 400 if one of the two files is missing or invalid. */
export function readSealedFile(file: string): SealedRelease {
  for (const path of [file, releasePath(file)]) {
    if (!existsSync(path)) throw new HubError(400, `The file ${path} does not exist: create it with "project seal".`)
  }
  try {
    const release = parseInput(releaseSchema, JSON.parse(readFileSync(releasePath(file), 'utf8')))
    return { bytes: readFileSync(file), release }
  } catch (error) {
    throw new HubError(
      400,
      `The file ${releasePath(file)} is invalid: ${error instanceof Error ? error.message : error}`,
    )
  }
}
