import type { z } from 'zod/mini'
import { type DocumentWords, SchemaComplaints } from '../document/schema-problems.ts'
import { ArtifactError } from '../errors.ts'
import { listNames } from '../foreign-text.ts'
import { isSameVersion } from '../trust/versions.ts'
import { manifestSchema } from './manifest-schema.ts'
import type { VariableNames } from './plugin-yaml.ts'

/** Bytes of the largest `manifest.json` that is read. */
export const MAX_MANIFEST_BYTES = 1024 * 1024

/** The rest are only counted. */
const MAX_LISTED_PROBLEMS = 10

/** One plugin or extension of a project. */
export interface ManifestPart {
  /** The directory of the project root that it is installed in. */
  readonly shelf: 'plugins' | 'extensions'
  readonly id: string
  /** A plugin's own; an extension has its project's. */
  readonly version: string
  /** Its directory in the archive, without a final `/`. */
  readonly folder: string
  /** The tree digest of its directory according to the manifest; null where it gives none. */
  readonly sha256: string | null
  readonly environment: VariableNames
}

/** What a project says about itself, in the root of its archive. */
export interface Manifest {
  readonly projectId: string
  readonly projectName: string
  readonly version: string
  readonly builtAt: string
  /** Plugins first, each kind in the order of the file; at least one plugin, ids unique in their shelf. */
  readonly parts: readonly ManifestPart[]
  /** Tree digest of everything but the manifest itself. */
  readonly contentSha256: string
  /** The archive's directory of plugins. */
  readonly pluginsDirname: string
}

/**
 * Parses `manifest.json`. Throws ArtifactError `invalid_manifest` with everything that is wrong with it, and
 * `source_not_supported` when it names a plugin or extension that is not embedded.
 */
export function parseManifest(text: string): Manifest {
  const value = parseJson(text)
  const parsed = manifestSchema.safeParse(value)
  if (!parsed.success) throw invalidManifest(problemList(parsed.error.issues, value))
  verifyEmbedded(parsed.data)
  return buildManifest(parsed.data)
}

/**
 * Vouches that a manifest is that of the requested project and version, ignoring a leading `v`. Throws ArtifactError
 * `invalid_manifest` for another project's, `version_mismatch` for another version's.
 */
export function verifyManifest(manifest: Manifest, asked: { projectId: string; version: string }): void {
  if (manifest.projectId !== asked.projectId) {
    throw invalidManifest(`project_id must be "${asked.projectId}", found "${manifest.projectId}"`)
  }
  if (isSameVersion(manifest.version, asked.version)) return
  throw new ArtifactError(
    'version_mismatch',
    `You asked for version ${asked.version} of project ${asked.projectId}, but its manifest.json says ${manifest.version}: nothing was installed. The hub or the publisher mixed up versions: ask the publisher.`,
  )
}

/** ArtifactError `invalid_manifest` about what is wrong with it. */
export function invalidManifest(problem: string): ArtifactError {
  return new ArtifactError(
    'invalid_manifest',
    `The project's manifest.json is refused: ${problem}. Nothing was installed; the publisher must seal the project again.`,
  )
}

type WrittenManifest = z.infer<typeof manifestSchema>

function parseJson(text: string): unknown {
  if (Buffer.byteLength(text) > MAX_MANIFEST_BYTES)
    throw invalidManifest(`it is larger than ${MAX_MANIFEST_BYTES} bytes`)
  try {
    return JSON.parse(text)
  } catch {
    throw invalidManifest('it is not JSON')
  }
}

const words: DocumentWords = {
  document: 'the manifest',
  subjectOf: () => ({ prefix: '', covers: 0 }),
  keysAt: () => Object.keys(manifestSchema.def.getter().shape),
}

function problemList(issues: readonly z.core.$ZodIssue[], value: unknown): string {
  const nowhere = () => ({ file: 'manifest.json', line: 1, column: 1 })
  const source = { problems: [], value, positionOf: nowhere, positionOfKey: nowhere }
  const problems = new SchemaComplaints(source, words).problemsOf(issues).map(({ message }) => message)
  const unlisted = problems.length - MAX_LISTED_PROBLEMS
  const more = unlisted > 0 ? [`${unlisted} more problems`] : []
  return [...problems.slice(0, MAX_LISTED_PROBLEMS), ...more].join('; ')
}

function verifyEmbedded({ plugins, extensions }: WrittenManifest): void {
  const elsewhere = [...plugins, ...(extensions ?? [])].filter(({ source }) => (source ?? null) !== null)
  if (elsewhere.length === 0) return
  throw new ArtifactError(
    'source_not_supported',
    `The project's manifest.json names an external source for ${listNames(elsewhere.map(({ id }) => id))}, but only parts inside the artifact can be installed: nothing was installed. The publisher must embed them.`,
  )
}

function buildManifest(written: WrittenManifest): Manifest {
  const pluginsDirname = written.plugins_dirname ?? 'plugins'
  const plugins = written.plugins.map(({ id, version, sha256, environment }) => ({
    ...{ shelf: 'plugins' as const, id, version, folder: `${pluginsDirname}/${id}`, sha256: sha256 ?? null },
    environment: environment ?? { required: [], optional: [] },
  }))
  const extensions = (written.extensions ?? []).map(({ id, sha256 }) => ({
    ...{
      shelf: 'extensions' as const,
      id,
      version: written.version,
      folder: `extensions/${id}`,
      sha256: sha256 ?? null,
    },
    environment: { required: [], optional: [] },
  }))
  return {
    projectId: written.project_id,
    projectName: written.project_name,
    version: written.version,
    builtAt: written.built_at,
    parts: [...plugins, ...extensions],
    contentSha256: written.content_sha256,
    pluginsDirname,
  }
}
