import { z } from 'zod/mini'
import { idSchema, stepIdSchema } from '../identifiers.ts'
import { runToEnd } from '../log.ts'
import { SourceError, type SourceProblem } from '../yaml/problems.ts'
import { keysOfSchema, SchemaComplaints } from '../yaml/schema.ts'
import { parseYamlSource } from '../yaml/source.ts'
import { durationSchema } from './step.ts'

type Supervisor = (typeof SUPERVISORS)[number]

/** A program with its arguments, run without a shell. */
export interface HostCommand {
  readonly command: readonly [string, ...string[]]
  readonly env: Readonly<Record<string, string>>
  readonly timeoutSeconds: number
}

export type HealthProbe =
  | { readonly type: 'http'; readonly url: string; readonly status: number; readonly body?: string }
  | { readonly type: 'tcp'; readonly address: string }
  | { readonly type: 'command'; readonly command: readonly [string, ...string[]] }

export interface HostHealthcheck {
  readonly probe: HealthProbe
  readonly intervalSeconds: number
  /** The time for which the probe must succeed without a break. */
  readonly stableForSeconds: number
}

/** The operator's entry for one id; its names replace the supervisor's templates. */
interface HostPlugin {
  readonly unit?: string
  readonly container?: string
  readonly deployment?: string
  readonly healthcheck?: HostHealthcheck
}

/** The operator's description of how this host runs plugins; the only source of commands. */
export interface HostConfig {
  readonly file: string
  /** Undefined if the file has no `supervisor`. With `none`, the file says that there is nothing to start. */
  readonly supervisor: Supervisor | undefined
  readonly systemd: { readonly scope: 'system' | 'user'; readonly unit: string; readonly projectUnit?: string }
  readonly docker: { readonly container: string }
  readonly kubernetes: {
    readonly namespace: string
    readonly deployment: string
    readonly kubeconfig?: string
    readonly context?: string
  }
  readonly plugins: ReadonlyMap<string, HostPlugin>
  /** The version of the host framework: dotted numbers. */
  readonly frameworkVersion: string | undefined
  /** By id. */
  readonly provision: ReadonlyMap<string, HostCommand>
  /** By event. */
  readonly notify: ReadonlyMap<string, HostCommand>
}

/** The error for a host config that is refused: code `invalid_host_config`, with its problems. */
export class HostConfigError extends SourceError {
  override readonly name: string = 'HostConfigError'

  constructor(problems: readonly SourceProblem[]) {
    const code = 'invalid_host_config'
    super(
      code,
      'The host config',
      problems.map(problem => ({ ...problem, code })),
    )
  }
}

/**
 * Parses the host config in `text` strictly as one YAML document; problems name `file`. Refuses unknown keys, names
 * that could be mistaken for options, and commands that are not an argument list. Throws HostConfigError
 * `invalid_host_config`.
 */
export function parseHostConfig(text: string, file: string): HostConfig {
  return runToEnd(parseHostConfigSlowly(text, file))
}

/** Like `parseHostConfig`, but pauses at each `yield`. */
export function* parseHostConfigSlowly(text: string, file: string): Generator<void, HostConfig> {
  const source = yield* parseYamlSource(text, file)
  if (source.value === undefined) throw new HostConfigError(source.problems)
  yield
  const parsed = hostConfigSchema.safeParse(source.value)
  const complaints = parsed.success ? [] : new SchemaComplaints(source, hostConfigWords).problemsOf(parsed.error.issues)
  const problems = [...source.problems, ...complaints]
  if (!parsed.success || problems.length > 0) throw new HostConfigError(problems)
  return buildHostConfig(parsed.data, file)
}

const hostConfigWords = {
  document: 'the host config',
  subjectOf: () => ({ prefix: '', covers: 0 }),
  keysAt: (path: readonly PropertyKey[]) => keysOfSchema(hostConfigSchema, path),
}

function buildHostConfig(written: WrittenHostConfig, file: string): HostConfig {
  const { project_unit: projectUnit, ...systemd } = written.systemd
  return {
    file,
    supervisor: written.supervisor,
    systemd: projectUnit === undefined ? systemd : { ...systemd, projectUnit },
    docker: written.docker,
    kubernetes: written.kubernetes,
    frameworkVersion: written.framework?.version,
    plugins: new Map(Object.entries(written.plugins).map(([id, plugin]) => [id, buildPlugin(plugin)])),
    provision: buildCommands(written.provision),
    notify: buildCommands(written.notify),
  }
}

function buildPlugin({ healthcheck, ...names }: WrittenHostConfig['plugins'][string]): HostPlugin {
  return healthcheck === undefined ? names : { ...names, healthcheck: buildHealthcheck(healthcheck) }
}

function buildHealthcheck(written: WrittenHealthcheck): HostHealthcheck {
  return { probe: buildProbe(written), intervalSeconds: written.interval, stableForSeconds: written.stable_for }
}

function buildProbe(written: WrittenHealthcheck): HealthProbe {
  if (written.http !== undefined) {
    const http = { type: 'http' as const, url: written.http, status: expectedStatus(written) }
    return written.body === undefined ? http : { ...http, body: written.body }
  }
  if (written.tcp !== undefined) return { type: 'tcp', address: written.tcp }
  // The schema guarantees exactly one of the three probes.
  return { type: 'command', command: written.command as HostCommand['command'] }
}

function buildCommands(written: WrittenHostConfig['provision']): ReadonlyMap<string, HostCommand> {
  return new Map(
    Object.entries(written).map(([name, { command, env, timeout: timeoutSeconds }]) => [
      name,
      { command, env, timeoutSeconds },
    ]),
  )
}

const SUPERVISORS = ['none', 'systemd', 'docker', 'kubernetes'] as const

const MAX_PROBE_SECONDS = 600
const MAX_PROVISION_SECONDS = 3600
const MAX_NOTIFY_SECONDS = 600
const DEFAULT_PROVISION_SECONDS = 300
const DEFAULT_NOTIFY_SECONDS = 30
const DEFAULT_HTTP_STATUS = 200
const MAX_BODY_MATCH_CHARS = 500
const HOST_AND_PORT = /^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})$/

const textSchema = z
  .string()
  .check(z.regex(/^[^\p{Cc}]+$/u, { error: 'must be one line of text, not empty and without control characters' }))
const argumentSchema = z.string().check(z.regex(/^[^\0]*$/, { error: 'must not contain a NUL character' }))
const PROGRAM_CHECKS = [
  z.minLength(1, { error: 'must name a program' }),
  z.regex(/^(?![~$])/, {
    error: 'must be a program or its whole path: no shell reads it, so ~ and $ are not expanded',
  }),
]
const commandSchema = z.lazy(() =>
  z.tuple([argumentSchema.check(...PROGRAM_CHECKS)], argumentSchema, {
    error: 'must be a list: the program and its arguments',
  }),
)
const environmentSchema = z.lazy(() =>
  z.record(
    z
      .string()
      .check(
        z.regex(/^[A-Za-z_][A-Za-z0-9_]*$/, { error: 'must be letters, digits and "_", not starting with a digit' }),
      ),
    argumentSchema,
  ),
)

/**
 * Names of the supervisor's own objects; `{id}` stands for the id. The form excludes names that look like options.
 */
const unitSchema = nameTemplateSchema(255, /^(?:[A-Za-z0-9_]|\{id\})(?:[A-Za-z0-9:_.@\\-]|\{id\})*$/)
const containerSchema = nameTemplateSchema(255, /^(?:[A-Za-z0-9]|\{id\})(?:[A-Za-z0-9_.-]|\{id\})*$/)
const deploymentSchema = nameTemplateSchema(253, /^(?:[a-z0-9]|\{id\})(?:[a-z0-9.-]|\{id\})*$/)
const namespaceSchema = z.lazy(() =>
  z
    .string()
    .check(z.regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/, { error: 'must be the name of a Kubernetes namespace' })),
)

const frameworkVersionError = { error: 'must be numbers with dots, in quotes, such as "2.1.0"' }
const frameworkVersionSchema = z
  .string(frameworkVersionError)
  .check(z.regex(/^\d{1,9}(?:\.\d{1,9}){0,5}$/, frameworkVersionError))

const httpStatusError = { error: 'must be an HTTP status from 100 to 599' }

const urlError = { error: 'must be an http or https URL without a user or password' }
const addressError = { error: 'must be written host:port, with a port from 1 to 65535' }

const healthcheckSchema = z.lazy(() =>
  z
    .strictObject({
      http: z.exactOptional(
        z
          .string()
          .check(z.regex(/^\s*[Hh][Tt][Tt][Pp][Ss]?:/, { ...urlError, abort: true }), z.refine(isHttpUrl, urlError)),
      ),
      tcp: z.exactOptional(
        z.string().check(z.regex(HOST_AND_PORT, { ...addressError, abort: true }), z.refine(hasPort, addressError)),
      ),
      command: z.exactOptional(commandSchema),
      status: z.exactOptional(z.int(httpStatusError).check(z.gte(100, httpStatusError), z.lte(599, httpStatusError))),
      body: z.exactOptional(
        textSchema.check(
          z.maxLength(MAX_BODY_MATCH_CHARS, { error: `must be at most ${MAX_BODY_MATCH_CHARS} characters` }),
        ),
      ),
      interval: z._default(durationSchema(1, MAX_PROBE_SECONDS), 1),
      stable_for: z._default(durationSchema(0, MAX_PROBE_SECONDS), 0),
    })
    .check(
      z.refine(({ http, tcp, command }) => [http, tcp, command].filter(probe => probe !== undefined).length === 1, {
        error: 'must have exactly one of http, tcp and command',
      }),
      z.refine(({ http, status, body }) => (status === undefined && body === undefined) || http !== undefined, {
        error: 'may have status and body only with http',
      }),
    ),
)

/** The form of a host config; unknown keys are refused everywhere. */
export const hostConfigSchema = z.lazy(() =>
  z.strictObject({
    version: z.literal([1, '1']),
    supervisor: z.exactOptional(z.enum(SUPERVISORS)),
    systemd: z.prefault(
      z.strictObject({
        scope: z._default(z.enum(['system', 'user']), 'system'),
        unit: z._default(unitSchema, '{id}.service'),
        project_unit: z.exactOptional(unitSchema),
      }),
      {},
    ),
    docker: z.prefault(z.strictObject({ container: z._default(containerSchema, '{id}') }), {}),
    kubernetes: z.prefault(
      z.strictObject({
        namespace: z._default(namespaceSchema, 'default'),
        deployment: z._default(deploymentSchema, '{id}'),
        kubeconfig: z.exactOptional(textSchema),
        context: z.exactOptional(textSchema.check(z.regex(/^[^-]/, { error: 'must not start with "-"' }))),
      }),
      {},
    ),
    plugins: z._default(
      z.record(
        idSchema,
        z.strictObject({
          unit: z.exactOptional(unitSchema),
          container: z.exactOptional(containerSchema),
          deployment: z.exactOptional(deploymentSchema),
          healthcheck: z.exactOptional(healthcheckSchema),
        }),
      ),
      {},
    ),
    framework: z.exactOptional(z.strictObject({ version: frameworkVersionSchema })),
    provision: hostCommandsSchema(
      idSchema,
      z._default(durationSchema(1, MAX_PROVISION_SECONDS), DEFAULT_PROVISION_SECONDS),
    ),
    notify: hostCommandsSchema(stepIdSchema, z._default(durationSchema(1, MAX_NOTIFY_SECONDS), DEFAULT_NOTIFY_SECONDS)),
  }),
)

type WrittenHostConfig = z.infer<typeof hostConfigSchema>
type WrittenHealthcheck = z.infer<typeof healthcheckSchema>

/** The HTTP status of a healthy answer. */
function expectedStatus(healthcheck: WrittenHealthcheck): number {
  return healthcheck.status ?? DEFAULT_HTTP_STATUS
}

function hostCommandsSchema(name: typeof idSchema, timeout: z.ZodMiniDefault<ReturnType<typeof durationSchema>>) {
  const entry = z.strictObject({ command: commandSchema, env: z._default(environmentSchema, {}), timeout })
  return z._default(z.record(name, entry), {})
}

function nameTemplateSchema(maxChars: number, form: RegExp) {
  const error = 'must be a name that the supervisor accepts, in which "{id}" stands for the id'
  return z.string().check(z.maxLength(maxChars, { error, abort: true }), z.regex(form, { error }))
}

function isHttpUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : undefined
  return url !== undefined && /^https?:$/.test(url.protocol) && url.username === '' && url.password === ''
}

function hasPort(text: string): boolean {
  const port = Number(HOST_AND_PORT.exec(text)?.[1])
  return port >= 1 && port <= 65_535
}
