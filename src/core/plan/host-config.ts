import { keysOfSchema } from '../document/schema-keys.ts'
import { SchemaComplaints } from '../document/schema-problems.ts'
import { SourceError, type SourceProblem } from '../document/source-problem.ts'
import { parseYamlSource } from '../document/yaml-source.ts'
import { runToEnd } from '../pausing-work.ts'
import {
  expectedStatus,
  hostConfigSchema,
  type SUPERVISORS,
  type WrittenHealthcheck,
  type WrittenHostConfig,
} from './host-config-schema.ts'

export type Supervisor = (typeof SUPERVISORS)[number]

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
export interface HostPlugin {
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
