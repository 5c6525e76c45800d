import { join } from 'node:path'
import { MAX_MANIFEST_BYTES } from '../core/content/manifest.ts'
import { ArtifactError } from '../core/errors.ts'
import { tryReadSmallFileSync } from '../install/files/read-small-file.ts'

/**
 * Returns the text of `manifest.json` in the folder `content`. Throws ArtifactError `invalid_manifest` if there is no
 * such file, or if the file is too large.
 */
export function readManifest(content: string): string {
  const text = tryReadSmallFileSync(join(content, 'manifest.json'), MAX_MANIFEST_BYTES)
  if (text !== undefined) return text
  throw new ArtifactError(
    'invalid_manifest',
    `The artifact has no manifest.json of at most ${MAX_MANIFEST_BYTES} bytes at its root: nothing was installed. The publisher must correct this and seal the project again.`,
  )
}
