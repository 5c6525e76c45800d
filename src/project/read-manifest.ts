import { join } from 'node:path'
import { MAX_MANIFEST_BYTES } from '../core/content/manifest.ts'
import { ArtifactError } from '../core/errors.ts'
import { tryReadSmallFileSync } from '../install/files/read-small-file.ts'

/** Reads the manifest of the project in this folder. Throws ArtifactError `invalid_manifest`. */
export function readManifest(content: string): string {
  const text = tryReadSmallFileSync(join(content, 'manifest.json'), MAX_MANIFEST_BYTES)
  if (text !== undefined) return text
  throw new ArtifactError(
    'invalid_manifest',
    `The artifact has no manifest.json of at most ${MAX_MANIFEST_BYTES} bytes at its root: nothing was installed. Its publisher must seal it again.`,
  )
}
