import { join } from 'node:path'
import { MAX_MANIFEST_BYTES, type Manifest, parseManifest, verifyManifest } from '../core/content/manifest.ts'
import { verifyContent } from '../core/content/project-content.ts'
import { ArtifactError } from '../core/errors.ts'
import { tryReadSmallFileSync } from '../install/files/read-small-file.ts'
import type { ProjectDeployment } from './deployment.ts'
import type { ExtractedProject } from './sealed.ts'

/** A project whose manifest matches its content and the requested version. */
export interface VerifiedProject extends ExtractedProject {
  readonly manifest: Manifest
}

/**
 * Reads the manifest and checks the extracted files against it: project, version, content digest. Throws ArtifactError
 * `invalid_manifest`, `version_mismatch`, `content_mismatch` or `source_not_supported`.
 */
export async function verifyProject(
  { request, tools, record }: ProjectDeployment,
  version: string,
  extracted: ExtractedProject,
): Promise<VerifiedProject> {
  const manifest = parseManifest(readManifest(extracted.content))
  verifyManifest(manifest, { projectId: request.projectId, version })
  const { warnings, unnamed } = verifyContent(manifest, extracted.tree)
  for (const warning of warnings) tools.log.warning(warning)
  for (const folder of unnamed) tools.log.notice(`The manifest does not name ${folder}: it is not installed.`)
  await record.update({ version: manifest.version, version_source: 'manifest' })
  return { ...extracted, manifest }
}

function readManifest(content: string): string {
  const text = tryReadSmallFileSync(join(content, 'manifest.json'), MAX_MANIFEST_BYTES)
  if (text !== undefined) return text
  throw new ArtifactError(
    'invalid_manifest',
    `The artifact has no manifest.json at its root, a file of at most ${MAX_MANIFEST_BYTES} bytes: nothing was installed. Its publisher must seal it again.`,
  )
}
