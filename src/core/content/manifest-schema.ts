import valid from 'semver/functions/valid.js'
import { z } from 'zod/mini'
import { idSchema, projectIdSchema, sha256Schema, versionSchema } from '../identifiers.ts'
import { externalSourceSchema } from './external-source.ts'

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
