import { z } from 'zod/mini'
import { type Service, shortName } from './service.ts'

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
