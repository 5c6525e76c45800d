import { readFileSync, rmSync } from 'node:fs'
import { HubError } from '../../errors.ts'
import { parseInput } from '../../names.ts'
import { writeNewFile } from '../../new-file.ts'
import { releaseSchema, type SealedRelease } from '../../project/publish.ts'
import { unreadable } from '../../unreadable.ts'

/** The path of a sealed file's release, a file next to it. Publishing needs the release, which contains the DEK. */
export function releasePath(file: string): string {
  return `${file}.release.json`
}

/**
 * Writes a sealed file, and next to it its release, which only the user can read. Writes both or none. Throws HubError
 * 400 if one of them already exists or cannot be written.
 */
export function writeSealedFile(file: string, { bytes, release }: SealedRelease): void {
  writeNewFile(releasePath(file), `${JSON.stringify(release, null, 2)}\n`, 0o600)
  try {
    writeNewFile(file, bytes)
  } catch (error) {
    rmSync(releasePath(file), { force: true })
    throw error
  }
}

/** Throws HubError 400 if one of the two files is missing or cannot be read, or if the release is invalid. */
export function readSealedFile(file: string): SealedRelease {
  const [bytes, release] = [readPart(file), readPart(releasePath(file))]
  try {
    return { bytes, release: parseInput(releaseSchema, JSON.parse(release.toString('utf8'))) }
  } catch (error) {
    const problem = error instanceof Error ? error.message : error
    throw new HubError(
      400,
      `The file ${releasePath(file)} is invalid (${problem}): seal the project again with "project seal".`,
    )
  }
}

function readPart(path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new HubError(400, `The file ${path} ${unreadable(error, 'create it with "project seal"')}.`)
  }
}
