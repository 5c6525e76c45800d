import { readFileSync } from 'node:fs'
import { z } from 'zod/mini'
import { DeploymentError } from '../../core/errors.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import { cleanForeignText } from '../../core/text.ts'
import { allowedEnvironment, type ChildEnd, runChild } from '../files/child-process.ts'

const ACTION_TIMEOUT_MS = 5 * 60_000
const STATE_TIMEOUT_MS = 30_000

/** The limits that end a command or a probe early. */
export interface Limits {
  timeoutMs: number
  signal: AbortSignal
  /** See `runChild`. */
  abortGraceMs?: number
}

export interface ServiceState extends ParsedState {
  /** The supervisor answered that it has no service of this name. */
  missing: boolean
  /** The supervisor's answer, in one line. */
  evidence: string
}

/**
 * Has the supervisor start, stop or restart a service, within 5 minutes unless `limits` says otherwise. Returns the
 * warnings that the supervisor printed although it succeeded, one sentence each.
 * Throws DeploymentError `step_failed` with the supervisor's output and advice, or `step_timed_out`.
 */
export async function superviseService(order: ServiceOrder, limits: Partial<Limits> = {}): Promise<readonly string[]> {
  const { service, action } = order
  const command = actionCommand(order)
  const env = supervisorEnvironment(service)
  const end = await runChild({ command, env, timeoutMs: ACTION_TIMEOUT_MS, ...limits })
  if (end.kind === 'exited' && end.code === 0) return warningsIn(end.output).map(text => `${inPast(order)}: ${text}`)
  throw new DeploymentError(
    end.kind === 'timed_out' ? 'step_timed_out' : 'step_failed',
    `Could not ${action} ${describeService(service)}: ${command.join(' ')} ${describeChildEnd(end)}. ${adviceOn(service, end)}`,
  )
}

function warningsIn(output: string): string[] {
  return output.split('\n').filter(line => /^warning:/i.test(line))
}

/** The page that lists what the runner's user may need to be granted. */
const GRANTS_PAGE = 'docs/security.md#what-the-runners-user-needs'

/** Advises on an action that failed: names the permission that is missing, if the supervisor's output says so. */
function adviceOn(service: Service, end: ChildEnd): string {
  const output = 'output' in end ? end.output : ''
  const grant = missingGrant(service, output)
  if (grant !== undefined) return grant
  if (service.supervisor !== 'systemd') return 'Check the service on this host.'
  if (/\bis masked\b/.test(output)) return 'Unmask the unit, or name another one in the host config.'
  if (/\bnot (?:found|loaded)\b/.test(output)) return 'Install the unit, or correct its name in the host config.'
  return 'Check the service on this host.'
}

/** Names the permission that the supervisor refused, and where it is described; undefined if it refused none. */
function missingGrant(service: Service, output: string): string | undefined {
  switch (service.supervisor) {
    case 'systemd':
      if (service.scope === 'user') return undefined
      if (!/access denied|authentication (?:is )?required|requires authentication|not authorized/i.test(output))
        return undefined
      return `The runner's user lacks the polkit rule for this unit: ${GRANTS_PAGE} has that rule.`
    case 'docker':
      if (!/permission denied|authorization denied/i.test(output)) return undefined
      return `The runner's user may not use this Docker daemon: see ${GRANTS_PAGE}.`
    case 'kubernetes':
      if (!/\bforbidden\b|\bunauthorized\b/i.test(output)) return undefined
      return `The account that kubectl uses lacks this permission: see ${GRANTS_PAGE}.`
  }
}

/**
 * Asks the supervisor about a service. If the supervisor gives no usable answer, the state is unknown and the evidence
 * says why.
 */
export async function readServiceState(service: Service, limits: Partial<Limits> = {}): Promise<ServiceState> {
  const command = stateCommand(service)
  const env = supervisorEnvironment(service)
  const end = await runChild({ command, env, timeoutMs: STATE_TIMEOUT_MS, ...limits })
  const state = end.kind === 'exited' ? parseState(service, end) : UNKNOWN_STATE
  const missing = end.kind === 'exited' && end.code !== 0 && saysMissing(service, end.output)
  const grant = 'output' in end ? missingGrant(service, end.output) : undefined
  const unknown = `: ${command[0]} ${describeChildEnd(end)}${grant === undefined ? '' : `. ${grant}`}`
  return { ...state, missing, evidence: `${describeService(service)}${state.known ? ` ${state.words}` : unknown}` }
}

/**
 * Finds the service that runs a part for which no plan names one. It has the name in the part's row of the host config,
 * or else the usual name. If no row names the service, and no service with the usual name exists (with systemd: runs),
 * the project-wide unit runs the part. Returns undefined if there is no project-wide unit and no row of the part
 * either.
 */
export async function findServiceOf(
  config: HostConfig,
  id: string,
  limits: Partial<Limits> = {},
): Promise<NamedService | undefined> {
  const row = config.plugins.get(id)
  const service = serviceOf(config, id)
  if (service === undefined) return undefined
  const own = { service, part: id }
  if ((row?.unit ?? row?.container ?? row?.deployment) !== undefined) return own
  if (!isServiceAbsent(service, await readServiceState(service, limits))) return own
  const projectWide = findNamed(config, null)
  if (projectWide !== undefined) return { service: projectWide, part: null }
  return row === undefined ? undefined : own
}

/** systemd reports a unit that does not exist in the same way as a stopped one. */
function isServiceAbsent({ supervisor }: Service, { missing, words }: ServiceState): boolean {
  return missing || (supervisor === 'systemd' && /^is (?:inactive|unknown) /.test(words))
}

/** Returns the answer to `runCommand`, by which a new start is recognized, or null if the supervisor gives none. */
export async function readServiceRun(service: Service, limits: Partial<Limits> = {}): Promise<string | null> {
  return await ask(service, runCommand(service), limits)
}

/**
 * Returns how many times containers of a Kubernetes deployment were restarted within their pods: such a restart may be
 * too brief to make the deployment unavailable. Returns null for other supervisors, or if the number is not known.
 */
export async function readRestarts(
  service: Service,
  { labels }: ParsedState,
  limits: Partial<Limits> = {},
): Promise<number | null> {
  if (service.supervisor !== 'kubernetes' || labels === null) return null
  const answer = await ask(service, restartsCommand(service, labels), limits)
  return answer === null ? null : parseRestarts(answer)
}

/**
 * Returns the same text as long as the service has the same process or, with Kubernetes, the same definition and pods.
 * Returns null if that is not known.
 */
export async function identifyProcess(
  service: Service,
  { labels }: ParsedState,
  limits: Partial<Limits> = {},
): Promise<string | null> {
  if (service.supervisor !== 'kubernetes') return await readServiceRun(service, limits)
  const definition = await ask(service, definitionCommand(service), limits)
  if (definition === null || labels === null) return definition
  return `${definition} ${await ask(service, podsCommand(service, labels), limits)}`
}

async function ask(service: Service, command: [string, ...string[]], limits: Partial<Limits>): Promise<string | null> {
  const env = supervisorEnvironment(service)
  const end = await runChild({ command, env, timeoutMs: STATE_TIMEOUT_MS, ...limits })
  return end.kind === 'exited' && end.code === 0 ? end.stdout.trim() || null : null
}

/** Makes the supervisor forget earlier starts, so that its start limit does not refuse the next one. */
export async function forgetStarts(service: Service, limits: Partial<Limits> = {}): Promise<void> {
  const command = forgetStartsCommand(service)
  if (command === undefined) return
  await runChild({ command, env: supervisorEnvironment(service), timeoutMs: STATE_TIMEOUT_MS, ...limits })
}

const UNKNOWN_STATE: ParsedState = { known: false, up: false, running: false, replicas: null, labels: null, words: '' }

/** Describes the end of a child as a predicate whose subject is the program. */
export function describeChildEnd(end: ChildEnd): string {
  switch (end.kind) {
    case 'exited':
      return `returned exit code ${end.code}${describeOutput(end.output)}`
    case 'signalled':
      return `was killed by ${end.signal}${describeOutput(end.output)}`
    case 'timed_out':
      return `did not finish in time${describeOutput(end.output)}`
    case 'not_started':
      return `could not be started (${cleanForeignText(end.error.message)})`
  }
}

function describeOutput(output: string): string {
  const text = cleanForeignText(output, 2048)
  return text === '' ? ' and printed nothing' : ` and printed "${text}"`
}

export type ServiceAction = 'start' | 'stop' | 'restart'

/** An action that a plan performs on a service. */
export interface ServiceTask {
  service: Service
  action: ServiceAction
}

export interface ServiceOrder extends ServiceTask {
  /** The number of replicas that a start sets for a Kubernetes deployment; null for anything else. */
  replicas: number | null
  /** Leaves it to systemd to act once the units that the service waits for have started. */
  isQueued?: boolean
}

type Command = [string, ...string[]]

/** The supervisor's own command line that carries out an order, as an argument list, without a shell. */
export function actionCommand(order: ServiceOrder): Command {
  const { service, action, isQueued } = order
  switch (service.supervisor) {
    case 'systemd':
      return [...systemctl(service), ...(isQueued ? ['--no-block'] : []), action, service.unit]
    case 'docker':
      return ['docker', action, service.container]
    case 'kubernetes':
      return [...kubectl(service), ...kubernetesAction(order), `deployment/${service.deployment}`]
  }
}

/** The command line that asks for a service's state; `parseState` reads the answer. */
export function stateCommand(service: Service): Command {
  switch (service.supervisor) {
    case 'systemd':
      return [...systemctl(service), 'is-active', service.unit]
    case 'docker':
      return ['docker', 'inspect', '--format', DOCKER_STATE, service.container]
    case 'kubernetes':
      return [...kubectl(service), 'get', `deployment/${service.deployment}`, `--output=jsonpath=${KUBERNETES_STATE}`]
  }
}

/** Reports an action in the past tense: `greeter.service restarted`. */
export function inPast({ service, action }: ServiceTask): string {
  return `${shortName(service)} ${PAST_TENSE[action]}`
}

export const PAST_TENSE: Record<ServiceAction, string> = { start: 'started', stop: 'stopped', restart: 'restarted' }

/** The command line that shows an operator the last lines of a service's log. */
export function logCommand(service: Service): string {
  switch (service.supervisor) {
    case 'systemd':
      return `journalctl ${service.scope === 'user' ? '--user ' : ''}-u ${service.unit} -n 50`
    case 'docker':
      return `docker logs --tail 50 ${service.container}`
    case 'kubernetes':
      return [...kubectl(service), 'logs', '--tail=50', `deployment/${service.deployment}`].join(' ')
  }
}

/**
 * The command line whose answer changes with every start of a unit or container, even a start by the supervisor itself.
 * For a Kubernetes deployment, the answer is the time at which its availability last changed.
 */
export function runCommand(service: Service): Command {
  switch (service.supervisor) {
    case 'systemd':
      return [...systemctl(service), 'show', '--property=InvocationID', service.unit]
    case 'docker':
      return ['docker', 'inspect', '--format', DOCKER_RUN, service.container]
    case 'kubernetes':
      return [...kubectl(service), 'get', `deployment/${service.deployment}`, `--output=jsonpath=${KUBERNETES_RUN}`]
  }
}

/**
 * The command line that asks how many times each container of a Kubernetes deployment was restarted within its pod.
 * `labels` selects the deployment's pods, and comes from `parseState`; `parseRestarts` reads the answer.
 */
export function restartsCommand(service: Extract<Service, { supervisor: 'kubernetes' }>, labels: string): Command {
  return [...kubectl(service), 'get', 'pods', `--selector=${labels}`, `--output=jsonpath=${KUBERNETES_RESTARTS}`]
}

/** The command line whose answer changes with the definition and the availability of a Kubernetes deployment. */
function definitionCommand(service: Extract<Service, { supervisor: 'kubernetes' }>): Command {
  const definition = `{.metadata.uid} {.metadata.generation} ${KUBERNETES_RUN}`
  return [...kubectl(service), 'get', `deployment/${service.deployment}`, `--output=jsonpath=${definition}`]
}

/** The command line whose answer changes with each new pod of a Kubernetes deployment, and each restart within one. */
function podsCommand(service: Extract<Service, { supervisor: 'kubernetes' }>, labels: string): Command {
  const pods = `{.items[*].metadata.uid} ${KUBERNETES_RESTARTS}`
  return [...kubectl(service), 'get', 'pods', `--selector=${labels}`, `--output=jsonpath=${pods}`]
}

/** Returns the sum of the restarts of all containers. New pods add nothing, and deleted pods are not counted. */
export function parseRestarts(text: string): number {
  return text
    .split(' ')
    .map(Number)
    .reduce((sum, count) => sum + count, 0)
}

/**
 * The command line that makes a supervisor forget the recent starts of a service; undefined for a supervisor without
 * such a command.
 */
export function forgetStartsCommand(service: Service): Command | undefined {
  return service.supervisor === 'systemd' ? [...systemctl(service), 'reset-failed', service.unit] : undefined
}

export interface ParsedState {
  /** Whether the answer shows the state of the service. */
  known: boolean
  /** At least part of the service is up, even if it is not yet healthy or complete. */
  up: boolean
  /** The service runs completely, and as its latest definition requires. */
  running: boolean
  /** The number of replicas that a Kubernetes deployment wants; null elsewhere. */
  replicas: number | null
  /** The labels of a Kubernetes deployment's pods, as a selector; null elsewhere, or if they could not be read. */
  labels: string | null
  /** The answer in words, to follow the service's name. */
  words: string
}

/** Parses the answer to `stateCommand`. */
export function parseState(service: Service, answer: { code: number; stdout: string }): ParsedState {
  // systemctl is-active also reports the state through its exit code, which is not 0 for "activating", for example.
  const text = answer.code === 0 || service.supervisor === 'systemd' ? answer.stdout.trim() : ''
  switch (service.supervisor) {
    case 'systemd':
      return parseUnitState(text)
    case 'docker':
      return parseContainerState(text)
    case 'kubernetes':
      return parseDeploymentState(text)
  }
}

/**
 * True if the output of a failed `stateCommand` says that the service does not exist. Always false for systemd, which
 * reports a missing unit as inactive.
 */
export function saysMissing(service: Service, output: string): boolean {
  switch (service.supervisor) {
    case 'systemd':
      return false
    case 'docker':
      return /\bno such (?:object|container)\b/i.test(output)
    case 'kubernetes':
      return /\(NotFound\)/.test(output)
  }
}

const UP_UNITS: ReadonlySet<string> = new Set(['active', 'activating', 'reloading', 'refreshing'])
/** An old systemctl reports a unit that does not exist as `unknown`. */
const DOWN_UNITS: ReadonlySet<string> = new Set(['inactive', 'failed', 'deactivating', 'maintenance', 'unknown'])
const DOCKER_STATE = '{{.State.Status}}{{if .State.Health}} {{.State.Health.Status}}{{end}}'
const DOCKER_RUN = '{{.State.StartedAt}}'
const KUBERNETES_RUN = '{.status.conditions[?(@.type=="Available")].lastTransitionTime}'
const KUBERNETES_RESTARTS = '{.items[*].status.containerStatuses[*].restartCount}'
const KUBERNETES_STATE = [
  '{.metadata.generation}',
  '{.status.observedGeneration}',
  '{.spec.replicas}',
  '{.status.updatedReplicas}',
  '{.status.availableReplicas}',
  '{.status.replicas}',
  '{.spec.selector.matchLabels}',
].join(' ')

const SINGLE = { replicas: null, labels: null }

function parseUnitState(text: string): ParsedState {
  const up = UP_UNITS.has(text)
  const running = text === 'active'
  const words = `is ${text} (ActiveState)${running ? '' : ', expected active'}`
  return { known: up || DOWN_UNITS.has(text), up, running, ...SINGLE, words }
}

function parseContainerState(text: string): ParsedState {
  const [status, health] = text.split(' ')
  return {
    known: text !== '',
    up: /^(?:running|restarting)\b/.test(text),
    running: text === 'running' || text === 'running healthy',
    ...SINGLE,
    words: `has status ${status}${health === undefined ? '' : `, health ${health}`}`,
  }
}

/** kubectl may leave a field empty if its value is 0. */
function parseDeploymentState(text: string): ParsedState {
  const fields = text.split(' ')
  const [generation = 0, observed = 0, wanted = 0, updated = 0, available = 0, all = 0] = fields.slice(0, 6).map(Number)
  const isComplete = updated === wanted && available === wanted && all === wanted
  const running = observed >= generation && wanted > 0 && isComplete
  const words = `has replicas ${wanted}, updated ${updated}, available ${available}, existing ${all}, generation ${generation}, observed ${observed}`
  const known = /^\d+$/.test(fields[2] ?? '')
  return { known, up: wanted > 0, running, replicas: wanted, labels: parseLabels(fields[6] ?? ''), words }
}

/**
 * Parses labels, which kubectl prints as JSON. Returns null if there are none, or if an older kubectl prints them in
 * another form.
 */
function parseLabels(text: string): string | null {
  try {
    const labels = z.record(z.string(), z.string()).parse(JSON.parse(text))
    const selector = Object.entries(labels).map(([name, value]) => `${name}=${value}`)
    return selector.length === 0 ? null : selector.join(',')
  } catch {
    return null
  }
}

function systemctl(service: Extract<Service, { supervisor: 'systemd' }>): Command {
  return service.scope === 'user' ? ['systemctl', '--user'] : ['systemctl']
}

function kubectl(service: Extract<Service, { supervisor: 'kubernetes' }>): Command {
  const kubeconfig = service.kubeconfig === null ? [] : [`--kubeconfig=${service.kubeconfig}`]
  const context = service.context === null ? [] : [`--context=${service.context}`]
  return ['kubectl', ...kubeconfig, ...context, `--namespace=${service.namespace}`]
}

function kubernetesAction({ action, replicas }: ServiceOrder): string[] {
  switch (action) {
    case 'start':
      return ['scale', `--replicas=${replicas || 1}`]
    case 'stop':
      return ['scale', '--replicas=0']
    case 'restart':
      return ['rollout', 'restart']
  }
}

/** A service that a supervisor of this host runs, with the supervisor's name for it. Comes only from a host config. */
export type Service =
  | { readonly supervisor: 'systemd'; readonly scope: 'system' | 'user'; readonly unit: string }
  | { readonly supervisor: 'docker'; readonly container: string }
  | {
      readonly supervisor: 'kubernetes'
      readonly namespace: string
      readonly deployment: string
      readonly kubeconfig: string | null
      readonly context: string | null
    }

/** A service, with the only name that state files have for it. */
export interface NamedService {
  readonly service: Service
  /** The id of the part that the service runs, or null for the project-wide unit. */
  readonly part: string | null
}

/** Returns the same key for the same service. */
export function keyOfService(service: Service): string {
  return JSON.stringify(service)
}

/** Returns the service that a state file names, or undefined if this host config has none for that name. */
export function findNamed(config: HostConfig, part: string | null): Service | undefined {
  if (part !== null) return serviceOf(config, part)
  const { scope, projectUnit } = config.systemd
  return config.supervisor === 'systemd' && projectUnit !== undefined
    ? { supervisor: 'systemd', scope, unit: projectUnit }
    : undefined
}

/** Describes a service by the name that state files have for it. */
export function describePart(part: string | null): string {
  return part === null ? 'the unit of the whole project' : `the service of ${part}`
}

/** Returns the service of an id, or undefined if the host config names no supervisor or says `none`. */
export function serviceOf(config: HostConfig, id: string): Service | undefined {
  const named = config.plugins.get(id)
  const fill = (template: string): string => template.replaceAll('{id}', id)
  switch (config.supervisor) {
    case undefined:
    case 'none':
      return undefined
    case 'systemd':
      return { supervisor: 'systemd', scope: config.systemd.scope, unit: fill(named?.unit ?? config.systemd.unit) }
    case 'docker':
      return { supervisor: 'docker', container: fill(named?.container ?? config.docker.container) }
    case 'kubernetes': {
      const { namespace, deployment, kubeconfig = null, context = null } = config.kubernetes
      return {
        supervisor: 'kubernetes',
        namespace,
        deployment: fill(named?.deployment ?? deployment),
        kubeconfig,
        context,
      }
    }
  }
}

/**
 * Returns the service of an id in a step that names no plugin: the project-wide unit if there is one; otherwise, the
 * id's own service.
 */
export function projectServiceOf(config: HostConfig, id: string): Service | undefined {
  return findNamed(config, null) ?? serviceOf(config, id)
}

/**
 * Returns the name of a systemd unit alone, because such names are recognized as units. Otherwise, returns the type and
 * the name.
 */
export function shortName(service: Service): string {
  return service.supervisor === 'systemd' ? service.unit : describeService(service)
}

/** Returns the service's type and name, for an operator. */
export function describeService(service: Service): string {
  switch (service.supervisor) {
    case 'systemd':
      return `${service.scope === 'user' ? 'user unit' : 'unit'} ${service.unit}`
    case 'docker':
      return `container ${service.container}`
    case 'kubernetes':
      return `deployment ${service.namespace}/${service.deployment}`
  }
}

/**
 * The variables that each supervisor's command line uses to find its daemon or cluster; the command line may also use
 * files in `HOME`.
 */
const WHEREABOUTS: Record<Service['supervisor'], readonly string[]> = {
  systemd: ['XDG_RUNTIME_DIR', 'DBUS_SESSION_BUS_ADDRESS'],
  docker: [
    'DOCKER_HOST',
    'DOCKER_CONTEXT',
    'DOCKER_CONFIG',
    'DOCKER_TLS_VERIFY',
    'DOCKER_CERT_PATH',
    'DOCKER_API_VERSION',
    'XDG_RUNTIME_DIR',
  ],
  kubernetes: ['KUBECONFIG'],
}

/**
 * The environment of a supervisor's command line: the variables that every child gets, and those that the command line
 * uses to find its daemon or cluster.
 */
function supervisorEnvironment(service: Service): Record<string, string> {
  const found = WHEREABOUTS[service.supervisor].flatMap(name => {
    const value = process.env[name]
    return value === undefined ? [] : [[name, value] as const]
  })
  return allowedEnvironment({ ...runtimeDirectory(service), ...Object.fromEntries(found) })
}

/** systemctl finds a user's manager through the runtime directory, which a runner that is itself a service may lack. */
function runtimeDirectory(service: Service): Record<string, string> {
  const uid = process.getuid?.()
  if (service.supervisor !== 'systemd' || service.scope !== 'user' || uid === undefined) return {}
  return { XDG_RUNTIME_DIR: `/run/user/${uid}` }
}

/**
 * For commands from the host config: the variable that says whether the deployment has so far changed what the host
 * runs.
 */
export function changedVariable({ changed }: { readonly changed: boolean }): { DEPLOYMENT_CHANGED: string } {
  return { DEPLOYMENT_CHANGED: String(changed) }
}

const TIMEOUT_MS = 30_000

/**
 * Reports to systemd that the unit of this process has started (`Type=notify`), so that the units ordered after that
 * unit start now. Returns false if systemd does not wait for such a report.
 */
export async function notifyReady(): Promise<boolean> {
  const socket = process.env['NOTIFY_SOCKET']
  if (socket === undefined) return false
  const env = allowedEnvironment({ NOTIFY_SOCKET: socket })
  await runChild({ command: ['systemd-notify', '--ready'], env, timeoutMs: TIMEOUT_MS, isSilent: true })
  return true
}

/**
 * True if systemd is still starting the unit of this process. In that case, do not wait for a unit that is ordered
 * after it: such a unit starts only once the unit of this process has started, so the wait would never end.
 */
export async function isOwnUnitStarting(): Promise<boolean> {
  const unit = findOwnUnit()
  if (unit === undefined) return false
  const command = ['systemctl', ...unit.scope, 'show', '--property=ActiveState', unit.name] as const
  const end = await runChild({ command: [...command], env: managerEnvironment(), timeoutMs: TIMEOUT_MS })
  return end.kind === 'exited' && end.stdout.trim() === 'ActiveState=activating'
}

/** Finds the unit in the paths of this process's control groups; there may be one group in each hierarchy. */
function findOwnUnit(): { scope: string[]; name: string } | undefined {
  const paths = [...readControlGroups().matchAll(/^(?:0:|\d+:name=systemd):(.*)$/gm)].map(([, path = '']) => path)
  for (const path of paths) {
    const name = path.split('/').findLast(part => part.endsWith('.service'))
    if (name !== undefined) return { scope: /\/user@\d+\.service\/./.test(path) ? ['--user'] : [], name }
  }
  return undefined
}

function readControlGroups(): string {
  try {
    return readFileSync('/proc/self/cgroup', 'utf8')
  } catch {
    return ''
  }
}

function managerEnvironment(): Record<string, string> {
  const runtime = process.env['XDG_RUNTIME_DIR']
  return allowedEnvironment(runtime === undefined ? {} : { XDG_RUNTIME_DIR: runtime })
}
