import { z } from 'zod/mini'
import { idSchema, MAX_PATH_BYTES, stepIdSchema, versionSchema } from '../identifiers.ts'
import type { SourcePosition } from '../yaml/problems.ts'

const SECONDS_PER_UNIT = { s: 1, m: 60, h: 3600 } as const
const DURATION_FORM = /^ *(\d{1,6})([smh]?) *$/

/**
 * The form of a duration of `min` to `max` seconds as operators and packers write it (`30`, `"30"`, `" 30s "`, `"2m"`,
 * `"1h"`). The parsed value is in seconds.
 */
export function durationSchema(min: number, max: number) {
  const error = `must be ${min} to ${max} seconds, written like 30, "30s" or "2m"`
  const within = [z.gte(min, { error }), z.lte(max, { error })] as const
  const written = z.string().check(z.regex(DURATION_FORM, { error }))
  return z.union(
    [z.int({ error }).check(...within), z.pipe(z.pipe(written, z.transform(secondsOf)), z.number().check(...within))],
    { error },
  )
}

function secondsOf(text: string): number {
  const [, count, unit] = DURATION_FORM.exec(text) ?? []
  return Number(count) * (SECONDS_PER_UNIT[unit as keyof typeof SECONDS_PER_UNIT] ?? 1)
}

export const MAX_HEALTHCHECK_SECONDS = 600
export const DEFAULT_HEALTHCHECK_SECONDS = 30
const MAX_HEALTHCHECK_RETRIES = 20
const MAX_NOTIFY_MESSAGE_CHARS = 500

interface StepBase extends SourcePosition {
  readonly id: string
  readonly dependsOn: readonly string[]
  /** Whether to keep the replaced version after success. */
  readonly snapshot: boolean
}

/**
 * One step of a plan, with its position; `plugin` and `extension` are ids, which name directories below plugins/ or
 * extensions/.
 */
export type PlanStep = StepBase &
  (
    | { readonly action: Exclude<MarkerAction, 'configure_plugin'>; readonly to?: string }
    | { readonly action: 'configure_plugin'; readonly plugin: string }
    | { readonly action: 'install_plugin'; readonly plugin: string; readonly source?: object }
    | { readonly action: 'provision'; readonly plugin: string }
    | { readonly action: 'install_extension'; readonly extension: string; readonly source?: object }
    | { readonly action: 'write_env'; readonly plugin: string; readonly from: string }
    | { readonly action: 'start' | 'stop' | 'restart'; readonly plugin?: string }
    | {
        readonly action: 'healthcheck'
        readonly plugin?: string
        readonly timeoutSeconds: number
        readonly retries: number
      }
    | { readonly action: 'notify'; readonly event: string; readonly message?: string }
  )

/**
 * `./` may precede each component. The first component may also be a project archive's own name for its directory of
 * plugins.
 */
const TEMPLATE_PATH =
  /^(?:\.\/)*(?!\.)[^/\\\p{Cc}]+\/(?:\.\/)*[a-z0-9][a-z0-9_.-]{0,127}(?:\/(?:\.\/)*(?!\.{1,2}(?:\/|$))[^/\\\p{Cc}]+)+$/u

const templatePathSchema = z.pipe(
  z.string().check(
    z.maxLength(MAX_PATH_BYTES, { error: `must be at most ${MAX_PATH_BYTES} characters` }),
    z.regex(TEMPLATE_PATH, {
      error:
        'must be a relative path of the artifact, plugins/<id>/... or extensions/<id>/..., without ".." or backslashes',
    }),
  ),
  z.transform(path => path.replaceAll(/(?<=^|\/)(?:\.\/)+/g, '')),
)

const messageSchema = z
  .string()
  .check(
    z.maxLength(MAX_NOTIFY_MESSAGE_CHARS, { error: `must be at most ${MAX_NOTIFY_MESSAGE_CHARS} characters` }),
    z.regex(/^[^\p{Cc}\p{Zl}\p{Zp}]*$/u, { error: 'must be one line without control characters' }),
  )

const retriesSchema = z.union(
  [
    z.int().check(z.gte(0), z.lte(MAX_HEALTHCHECK_RETRIES)),
    z.pipe(z.string().check(z.regex(/^ *(?:1?\d|20) *$/)), z.transform(Number)),
  ],
  { error: `must be a whole number from 0 to ${MAX_HEALTHCHECK_RETRIES}` },
)

/** Readers of YAML 1.1 take these words for a truth value, so packers write them. */
const truthSchema = z.union(
  [
    z.boolean(),
    z.pipe(
      z.string().check(z.regex(/^(?:[Tt]rue|[Yy]es|[Oo]n|[Ff]alse|[Nn]o|[Oo]ff|TRUE|YES|ON|FALSE|NO|OFF)$/)),
      z.transform(word => /^(?:true|yes|on)$/i.test(word)),
    ),
  ],
  { error: 'must be true or false' },
)

const stepKeys = {
  id: stepIdSchema,
  depends_on: z._default(z.array(stepIdSchema), []),
  snapshot: z._default(truthSchema, false),
}

/** For the tool that seals a project. The signed manifest repeats the source, and only the manifest counts. */
const sourceKey = { source: z.exactOptional(z.record(z.string(), z.unknown())) }

/** The keys of every step. */
export const anyStepSchema = z.lazy(() => z.looseObject(stepKeys))

/** The form of a step, by its action; unknown actions and keys are refused. */
export const stepSchema = z.discriminatedUnion('action', [
  z.strictObject({ ...stepKeys, action: z.literal(['prepare', 'download', 'extract']) }),
  z.strictObject({ ...stepKeys, action: z.literal('rollback'), to: z.exactOptional(versionSchema) }),
  z.strictObject({
    ...stepKeys,
    action: z.literal(['provision', 'configure_plugin']),
    plugin: idSchema,
  }),
  z.strictObject({ ...stepKeys, ...sourceKey, action: z.literal('install_plugin'), plugin: idSchema }),
  z.strictObject({ ...stepKeys, ...sourceKey, action: z.literal('install_extension'), extension: idSchema }),
  z.strictObject({ ...stepKeys, action: z.literal('write_env'), plugin: idSchema, from: templatePathSchema }),
  z.strictObject({ ...stepKeys, action: z.literal(['start', 'stop', 'restart']), plugin: z.exactOptional(idSchema) }),
  z.strictObject({
    ...stepKeys,
    action: z.literal('healthcheck'),
    plugin: z.exactOptional(idSchema),
    timeout: z._default(durationSchema(1, MAX_HEALTHCHECK_SECONDS), DEFAULT_HEALTHCHECK_SECONDS),
    retries: z._default(retriesSchema, 0),
  }),
  z.strictObject({
    ...stepKeys,
    action: z.literal('notify'),
    event: stepIdSchema,
    message: z.exactOptional(messageSchema),
  }),
])

const SHAPES = stepSchema.def.options.map(({ shape }): z.core.$ZodShape => shape)
const ALL_KEYS: ReadonlySet<string> = new Set(SHAPES.flatMap(shape => Object.keys(shape)))

function shapeOf(action: unknown): z.core.$ZodShape | undefined {
  return SHAPES.find(shape => z.safeParse(shape['action'] as z.core.$ZodType, action).success)
}

/** Returns the keys that a step with `action` accepts; if the action is unknown, the keys that every step accepts. */
export function keysOfStep(action: unknown): string[] {
  return Object.keys(shapeOf(action) ?? { ...stepKeys, action })
}

/**
 * Returns the step without empty keys, which other packers write for every key that an action has in their own format:
 * null or an empty text at a key that some action knows and this one does not require.
 */
export function withoutEmptyKeys(step: unknown): unknown {
  if (typeof step !== 'object' || step === null || Array.isArray(step)) return step
  const entries = Object.entries(step)
  if (entries.every(([, value]) => value !== null && value !== '')) return step
  const shape = shapeOf('action' in step ? step.action : undefined) ?? {}
  const isRequired = (key: string): boolean => shape[key] !== undefined && shape[key]._zod.optin === undefined
  const isAbsent = ([key, value]: [string, unknown]): boolean =>
    (value === null || value === '') && ALL_KEYS.has(key) && !isRequired(key)
  return Object.fromEntries(entries.filter(entry => !isAbsent(entry)))
}

/** Builds the step in the form that the rest of the program uses. */
export function buildStep(written: z.infer<typeof stepSchema>, position: SourcePosition): PlanStep {
  const { depends_on: dependsOn, ...rest } = written
  if (rest.action !== 'healthcheck') return { ...rest, dependsOn, ...position }
  const { timeout: timeoutSeconds, ...check } = rest
  return { ...check, timeoutSeconds, dependsOn, ...position }
}

/** All actions that a plan can ask for. None of them runs a command from the plan. */
export const ACTIONS = [
  'prepare',
  'download',
  'extract',
  'rollback',
  'provision',
  'install_plugin',
  'install_extension',
  'configure_plugin',
  'write_env',
  'start',
  'stop',
  'restart',
  'healthcheck',
  'notify',
] as const

type Action = (typeof ACTIONS)[number]

const MARKER_ACTIONS = ['prepare', 'download', 'extract', 'rollback', 'configure_plugin'] as const

export type MarkerAction = Extract<Action, (typeof MARKER_ACTIONS)[number]>

/**
 * True if a step with this action has nothing to do: the deployment does the work of the action anyway, or the step
 * only orders other steps.
 */
export function isMarkerAction(action: string): action is MarkerAction {
  return MARKER_ACTIONS.some(marker => marker === action)
}

const INSTALL_ACTIONS = ['install_plugin', 'install_extension'] as const

export type InstallAction = Extract<Action, (typeof INSTALL_ACTIONS)[number]>

/** True if steps with this action, in a plan or in a report, install a part. */
export function isInstallAction(action: string): action is InstallAction {
  return INSTALL_ACTIONS.some(install => install === action)
}

const HOST_ACTIONS: ReadonlySet<string> = new Set<Action>(['provision', 'stop', 'start', 'restart', 'notify'])

/**
 * True if steps with this action change more of a host than files: they act on a service, or run the operator's
 * command.
 */
export function isHostAction(action: string): boolean {
  return HOST_ACTIONS.has(action)
}
