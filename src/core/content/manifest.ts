import valid from 'semver/functions/valid.js'
import { z } from 'zod/mini'
import { ArtifactError } from '../errors.ts'
import {
  DEFAULT_PLUGINS_DIRECTORY,
  EXTENSIONS_DIRECTORY,
  idSchema,
  projectIdSchema,
  sha256Schema,
  versionSchema,
} from '../identifiers.ts'
import { asSentence, countInWords, listNames } from '../text.ts'
import { isSameVersion } from '../trust/versions.ts'
import { MAX_REPORTED_PROBLEMS } from '../yaml/problems.ts'
import { type DocumentWords, SchemaComplaints } from '../yaml/schema.ts'
import type { VariableNames } from './plugin-yaml.ts'
import { type ExternalSource, externalSourceSchema, isPinned } from './source.ts'

/** Bytes of the largest `manifest.json` that is read. */
export const MAX_MANIFEST_BYTES = 1024 * 1024

/** Further problems are only counted. */
const MAX_LISTED_PROBLEMS = 10

/** One plugin or extension of a project. */
export interface ManifestPart {
  readonly shelf: 'plugins' | 'extensions'
  readonly id: string
  /**
   * The directory that contains the part on the host, relative to the project root: `pluginsDirname`, or `extensions`.
   */
  readonly directory: string
  /** A plugin's own version; for an extension, the version of the project. */
  readonly version: string
  /** The part's directory in the archive, without a final `/`. */
  readonly folder: string
  /** The tree digest that the manifest states for the part's tree; null if the manifest states none. */
  readonly sha256: string | null
  readonly environment: VariableNames
  /** The source of the part's tree; null for a part that the archive contains. */
  readonly source: ExternalSource | null
}

/** A part whose tree the archive does not contain. */
export interface SourcedPart extends ManifestPart {
  readonly source: ExternalSource
}

/** A project's description of itself, in the root of its archive. */
export interface Manifest {
  readonly projectId: string
  readonly projectName: string
  readonly version: string
  readonly builtAt: string
  /** The plugins (at least one), then the extensions, both in the order of the file. Each id is unique on its shelf. */
  readonly parts: readonly ManifestPart[]
  /** The tree digest of everything but the manifest itself. */
  readonly contentSha256: string
  /** The directory of plugins, in the archive and on the host. */
  readonly pluginsDirname: string
}

/**
 * Parses `manifest.json`. Throws ArtifactError `invalid_manifest`, which lists the manifest's problems, and
 * `unpinned_source` if the manifest names a source whose bytes it does not pin.
 */
export function parseManifest(text: string): Manifest {
  const value = parseJson(text)
  const parsed = manifestSchema.safeParse(value)
  if (!parsed.success) throw invalidManifest(problemList(parsed.error.issues, value))
  const manifest = buildManifest(parsed.data)
  verifyPinned(manifest.parts)
  return manifest
}

/**
 * Vouches that a manifest belongs to the requested project and version, ignoring a leading `v`. Throws ArtifactError
 * `invalid_manifest` for another project, and `version_mismatch` for another version.
 */
export function verifyManifest(manifest: Manifest, asked: { projectId: string; version: string }): void {
  if (manifest.projectId !== asked.projectId) {
    throw invalidManifest(`project_id must be "${asked.projectId}", but found "${manifest.projectId}"`)
  }
  if (isSameVersion(manifest.version, asked.version)) return
  throw new ArtifactError(
    'version_mismatch',
    `The hub served the artifact as version ${asked.version} of project ${asked.projectId}, but its manifest.json says ${manifest.version}: nothing was installed. The hub or the publisher mixed up versions: ask the publisher.`,
  )
}

/** Returns an ArtifactError `invalid_manifest` that states a problem of the manifest. */
export function invalidManifest(problem: string): ArtifactError {
  return new ArtifactError(
    'invalid_manifest',
    `The project's manifest.json is refused: ${asSentence(problem)} Nothing was installed; the publisher must seal the project again.`,
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

const manifestWords: DocumentWords = {
  document: 'the manifest',
  subjectOf: () => ({ prefix: '', covers: 0 }),
  keysAt: () => Object.keys(manifestSchema.def.getter().shape),
}

function problemList(issues: readonly z.core.$ZodIssue[], value: unknown): string {
  const nowhere = () => ({ file: 'manifest.json', line: 1, column: 1 })
  const source = { problems: [], value, positionOf: nowhere, positionOfKey: nowhere }
  const problems = new SchemaComplaints(source, manifestWords).problemsOf(issues).map(({ message }) => message)
  const unlisted = problems.length - MAX_LISTED_PROBLEMS
  const isWhole = problems.length < MAX_REPORTED_PROBLEMS
  const more = unlisted > 0 ? [`${isWhole ? '' : 'at least '}${countInWords(unlisted, 'more problem')}`] : []
  return [...problems.slice(0, MAX_LISTED_PROBLEMS), ...more].join('; ')
}

/**
 * Refuses a branch or tag as a source unless `sha256` pins its tree. A branch or tag can move at any time, and a push
 * to it does not need the publisher's key.
 */
function verifyPinned(parts: readonly ManifestPart[]): void {
  const unpinned = parts.filter(({ source, sha256 }) => source !== null && !isPinned(source, sha256))
  if (unpinned.length === 0) return
  throw new ArtifactError(
    'unpinned_source',
    `The project's manifest.json names a branch or tag, without the sha256 of its tree, as the source of ${listNames(unpinned.map(({ id }) => id))}: nothing was installed. The publisher must name the full commit id as ref, or add sha256, and seal the project again.`,
  )
}

/** True if the part's tree comes from a source, not from the archive. */
export function isSourced(part: ManifestPart): part is SourcedPart {
  return part.source !== null
}

function buildManifest(written: WrittenManifest): Manifest {
  const pluginsDirname = written.plugins_dirname ?? DEFAULT_PLUGINS_DIRECTORY
  const plugins = written.plugins.map(({ id, version, sha256, environment, source }) => ({
    ...{ shelf: 'plugins' as const, id, directory: pluginsDirname, version },
    ...{ folder: `${pluginsDirname}/${id}`, sha256: sha256 ?? null },
    environment: environment ?? { required: [], optional: [] },
    source: source ?? null,
  }))
  const extensions = (written.extensions ?? []).map(({ id, sha256, source }) => ({
    ...{
      shelf: 'extensions' as const,
      id,
      directory: EXTENSIONS_DIRECTORY,
      version: written.version,
      folder: `${EXTENSIONS_DIRECTORY}/${id}`,
      sha256: sha256 ?? null,
    },
    environment: { required: [], optional: [] },
    source: source ?? null,
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

const MAX_PARTS_OF_A_KIND = 1000
const MAX_VARIABLES = 1000
const MAX_TEXT_CHARS = 256

const lineSchema = z.lazy(() =>
  z
    .string()
    .check(
      z.minLength(1, { error: 'must not be empty' }),
      z.maxLength(MAX_TEXT_CHARS, { error: `must be at most ${MAX_TEXT_CHARS} characters` }),
      z.regex(/^[^\p{Cc}]*$/u, { error: 'must be one line without control characters' }),
    ),
)

const variablesSchema = z.lazy(() =>
  z.pipe(
    z.nullish(
      z.array(lineSchema).check(z.maxLength(MAX_VARIABLES, { error: `must contain at most ${MAX_VARIABLES} names` })),
    ),
    z.transform(names => names ?? []),
  ),
)

const semverSchema = z.lazy(() =>
  versionSchema.check(
    z.refine(text => valid(text) !== null, {
      error: 'must be a semantic version such as 1.4.0',
    }),
  ),
)

/**
 * The directory of plugins, in the archive and on the host. It is neither one of a project's other directories nor
 * inside one.
 */
const pluginsDirnameSchema = z.lazy(() =>
  z.string().check(
    z.regex(/^(?=.{1,255}$)(?!(?:extensions|deployment)(?:\/|$))[a-z0-9_-]+(?:\/[a-z0-9_-]+)*$/i, {
      error:
        'must be names of letters, digits, "_" and "-", joined by "/", at most 255 characters in all, and neither "extensions" nor "deployment", which a project uses for other purposes, nor a path below them',
    }),
  ),
)

const pluginSchema = z.lazy(() =>
  z
    .object({
      ...partKeys(),
      version: versionSchema,
      environment: z.nullish(z.object({ required: variablesSchema, optional: variablesSchema })),
    })
    .check(
      z.refine(({ sha256, source }) => (sha256 ?? source ?? null) !== null, {
        path: ['sha256'],
        error: 'is missing: an embedded plugin needs it',
        // Checked even if other keys are wrong, so that all problems are reported at once.
        when: ({ value }) => typeof value === 'object' && value !== null,
      }),
    ),
)

const extensionSchema = z.lazy(() => z.object(partKeys()))

/** The keys of every part. `source` belongs to a part that is not embedded. */
function partKeys() {
  return { id: idSchema, sha256: z.nullish(sha256Schema), source: z.nullish(externalSourceSchema) }
}

const pluginsSchema = z.lazy(() =>
  z
    .array(pluginSchema)
    .check(
      z.minLength(1, { error: 'must contain at least one plugin' }),
      z.maxLength(MAX_PARTS_OF_A_KIND, { error: `must contain at most ${MAX_PARTS_OF_A_KIND} plugins` }),
    ),
)

const extensionsSchema = z.lazy(() =>
  z
    .array(extensionSchema)
    .check(z.maxLength(MAX_PARTS_OF_A_KIND, { error: `must contain at most ${MAX_PARTS_OF_A_KIND} extensions` })),
)

/** The form of `manifest.json`; unknown keys are ignored. */
export const manifestSchema = z.lazy(() =>
  z.object({
    format_version: z.literal('1'),
    project_id: projectIdSchema,
    project_name: lineSchema,
    version: semverSchema,
    built_at: z.iso.datetime({ offset: true, local: true, error: 'must be a time in ISO 8601' }),
    plugins: pluginsSchema.check(z.superRefine(refuseRepeatedIds)),
    extensions: z.nullish(extensionsSchema.check(z.superRefine(refuseRepeatedIds))),
    content_sha256: sha256Schema,
    plugins_dirname: z.nullish(pluginsDirnameSchema),
  }),
)

function refuseRepeatedIds(parts: readonly { id: string }[], context: z.core.$RefinementCtx): void {
  const seen = new Set<string>()
  for (const [index, { id }] of parts.entries()) {
    if (seen.has(id))
      context.addIssue({
        code: 'custom',
        path: [index, 'id'],
        message: 'must be unique',
      })
    seen.add(id)
  }
}
