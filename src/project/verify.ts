import { type Manifest, parseManifest, verifyManifest } from '../core/content/manifest.ts'
import { verifyContent } from '../core/content/project-content.ts'
import { ArtifactError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { listFirst } from '../core/quantities.ts'
import type { ExtractedTree } from '../install/files/trees/extracted-tree.ts'
import type { ProjectDeployment } from './deployment.ts'
import { readManifest } from './read-manifest.ts'
import type { ExtractedProject } from './sealed.ts'

const MAX_LISTED_PARTS = 20

/** A project whose manifest matches its content and the requested version. */
export interface VerifiedProject extends ExtractedProject {
  readonly manifest: Manifest
}

/**
 * Reads the manifest. Checks its project id, its version and the ids of its parts against the request, and the
 * extracted files against its content digest. Throws ArtifactError `invalid_manifest`, `version_mismatch`,
 * `content_mismatch`, `unpinned_source` or `unexpected_part`, and ArchiveError `unsafe_archive`.
 */
export async function verifyProject(
  { request, tools, record }: ProjectDeployment,
  version: string,
  extracted: ExtractedProject,
): Promise<VerifiedProject> {
  const manifest = parseManifest(readManifest(extracted.content))
  verifyManifest(manifest, { projectId: request.projectId, version })
  refuseUnexpected(manifest, request.projectIds)
  if (extracted.installed === undefined) verifyFiles(manifest, extracted.tree, tools.log)
  await record.update({ version: manifest.version, version_source: 'manifest' })
  return { ...extracted, manifest }
}

/**
 * Not needed for a version that is installed from the same bytes, because that version has already passed this check.
 */
function verifyFiles(manifest: Manifest, tree: ExtractedTree, log: Log): void {
  const { warnings, unnamed } = verifyContent(manifest, tree)
  for (const warning of warnings) log.warning(warning)
  for (const folder of unnamed) log.notice(`The manifest does not name ${folder}, so this directory is not installed.`)
}

/** Refuses ids that the operator did not list, if there is a list. */
function refuseUnexpected({ parts }: Manifest, allowed: readonly string[] | undefined): void {
  const unexpected = parts.filter(({ id }) => allowed !== undefined && !allowed.includes(id))
  if (unexpected.length === 0) return
  const names = listFirst(
    unexpected.map(({ shelf, id }) => `${shelf}/${id}`),
    MAX_LISTED_PARTS,
  )
  throw new ArtifactError(
    'unexpected_part',
    `The project contains ${names}, which project-ids does not list: nothing was installed. Ask the publisher why. To accept a part, add its id to project-ids.`,
  )
}
