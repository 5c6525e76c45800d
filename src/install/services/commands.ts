import type { Service } from './service.ts'

export type ServiceAction = 'start' | 'stop' | 'restart'

type Command = [string, ...string[]]

/** The supervisor's own command line for an action: an argument list, no shell. `replicas` is how many a start makes of a Kubernetes deployment. */
export function actionCommand(service: Service, action: ServiceAction, replicas: number | null): Command {
  switch (service.supervisor) {
    case 'systemd':
      return [...systemctl(service), action, service.unit]
    case 'docker':
      return ['docker', action, service.container]
    case 'kubernetes':
      return [...kubectl(service), ...kubernetesAction(action, `deployment/${service.deployment}`, replicas)]
  }
}

/** The command line that asks for a service's state; `parseState` reads its answer. */
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

/**
 * The command line that asks which run of a service this is: its answer is another one after each start, also one that
 * the supervisor made by itself. A Kubernetes deployment tells when it last became available.
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

/** The command line that has a supervisor forget how often it started a service of late, where it counts that. */
export function forgetStartsCommand(service: Service): Command | undefined {
  return service.supervisor === 'systemd' ? [...systemctl(service), 'reset-failed', service.unit] : undefined
}

export interface ParsedState {
  /** Whether the answer says anything of the service at all. */
  known: boolean
  /** It is up in some way, be it not healthy or whole yet. */
  up: boolean
  /** It runs, whole, and as its latest definition wants it. */
  running: boolean
  /** How many a Kubernetes deployment wants; null elsewhere. */
  replicas: number | null
}

/** What the answer to `stateCommand` says: its exit code and its standard output. */
export function parseState(service: Service, exitCode: number, stdout: string): ParsedState {
  // systemctl is-active tells by its exit code as well, and what is "activating" is not 0.
  const text = exitCode === 0 || service.supervisor === 'systemd' ? stdout.trim() : ''
  switch (service.supervisor) {
    case 'systemd':
      return {
        known: UP_UNITS.has(text) || DOWN_UNITS.has(text),
        up: UP_UNITS.has(text),
        running: text === 'active',
        replicas: null,
      }
    case 'docker':
      return {
        known: text !== '',
        up: /^(?:running|restarting)\b/.test(text),
        running: text === 'running' || text === 'running healthy',
        replicas: null,
      }
    case 'kubernetes': {
      // A field that is 0 may be left out, which leaves its place empty.
      const fields = text.split(' ')
      const [generation = 0, observed = 0, wanted = 0, updated = 0, available = 0, all = 0] = fields.map(Number)
      const isWhole = updated === wanted && available === wanted && all === wanted
      const running = observed >= generation && wanted > 0 && isWhole
      return { known: /^\d+$/.test(fields[2] ?? ''), up: wanted > 0, running, replicas: wanted }
    }
  }
}

/** Whether what a failed `stateCommand` wrote says that there is no such thing; a unit that is not there is merely inactive. */
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
/** An old systemctl calls a unit that is not there `unknown`. */
const DOWN_UNITS: ReadonlySet<string> = new Set(['inactive', 'failed', 'deactivating', 'maintenance', 'unknown'])
const DOCKER_STATE = '{{.State.Status}}{{if .State.Health}} {{.State.Health.Status}}{{end}}'
const DOCKER_RUN = '{{.State.StartedAt}}'
const KUBERNETES_RUN = '{.status.conditions[?(@.type=="Available")].lastTransitionTime}'
const KUBERNETES_STATE = [
  '{.metadata.generation}',
  '{.status.observedGeneration}',
  '{.spec.replicas}',
  '{.status.updatedReplicas}',
  '{.status.availableReplicas}',
  '{.status.replicas}',
].join(' ')

function systemctl(service: Extract<Service, { supervisor: 'systemd' }>): Command {
  return service.scope === 'user' ? ['systemctl', '--user'] : ['systemctl']
}

function kubectl(service: Extract<Service, { supervisor: 'kubernetes' }>): Command {
  const kubeconfig = service.kubeconfig === null ? [] : [`--kubeconfig=${service.kubeconfig}`]
  const context = service.context === null ? [] : [`--context=${service.context}`]
  return ['kubectl', ...kubeconfig, ...context, `--namespace=${service.namespace}`]
}

function kubernetesAction(action: ServiceAction, deployment: string, replicas: number | null): string[] {
  switch (action) {
    case 'start':
      return ['scale', `--replicas=${replicas || 1}`, deployment]
    case 'stop':
      return ['scale', '--replicas=0', deployment]
    case 'restart':
      return ['rollout', 'restart', deployment]
  }
}
