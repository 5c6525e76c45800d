import { join } from 'node:path'
import { MAX_MANIFEST_BYTES, type Manifest, parseManifest, verifyManifest } from '../core/content/manifest.ts'
import { verifyContent } from '../core/content/project-content.ts'
import { ArtifactError } from '../core/errors.ts'
import type { ExtractedTree } from '../install/files/extracted-tree.ts'
import { tryReadSmallFileSync } from '../install/files/read-small-file.ts'
import type { Run } from './run.ts'

/** A project whose manifest and content agree with each other and with what was asked for. */
export interface VerifiedProject {
  manifest: Manifest
  /** The folder that holds what the artifact brings. */
  content: string
  tree: ExtractedTree
}

/**
 * Reads the manifest and checks by it what was extracted: project, version, content digest. Throws ArtifactError
 * `invalid_manifest`, `version_mismatch`, `content_mismatch` or `source_not_supported`.
 */
export async function verifyProject(
  run: Run,
  version: string,
  content: string,
  tree: ExtractedTree,
): Promise<VerifiedProject> {
  const manifest = parseManifest(readManifest(content))
  verifyManifest(manifest, { projectId: run.request.projectId, version })
  const { warnings, unnamed } = verifyContent(manifest, tree)
  for (const warning of warnings) run.tools.log.warning(warning)
  for (const folder of unnamed) run.tools.log.notice(`The manifest does not name ${folder}: it is not installed.`)
  await run.record.update({ version: manifest.version, version_source: 'manifest' })
  return { manifest, content, tree }
}

function readManifest(content: string): string {
  const text = tryReadSmallFileSync(join(content, 'manifest.json'), MAX_MANIFEST_BYTES)
  if (text !== undefined) return text
  throw new ArtifactError(
    'invalid_manifest',
    `The artifact has no manifest.json at its root, a file of at most ${MAX_MANIFEST_BYTES} bytes: nothing was installed; its publisher must seal it again.`,
  )
}
