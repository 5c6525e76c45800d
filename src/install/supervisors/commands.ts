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

export interface ParsedState {
  /** It runs, whole, and as its latest definition wants it. */
  running: boolean
  /** How many a Kubernetes deployment wants; null elsewhere. */
  replicas: number | null
}

/** What the answer to `stateCommand` says. */
export function parseState(service: Service, exitCode: number, output: string): ParsedState {
  const text = exitCode === 0 ? output.trim() : ''
  switch (service.supervisor) {
    case 'systemd':
      return { running: text === 'active', replicas: null }
    case 'docker':
      return { running: text === 'running' || text === 'running healthy', replicas: null }
    case 'kubernetes': {
      const [generation = 0, observed = 0, wanted = 0, updated = 0, available = 0, all = 0] = text
        .split(' ')
        .map(Number)
      const isWhole = updated === wanted && available === wanted && all === wanted
      return { running: observed >= generation && wanted > 0 && isWhole, replicas: wanted }
    }
  }
}

const DOCKER_STATE = '{{.State.Status}}{{if .State.Health}} {{.State.Health.Status}}{{end}}'
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
