import { DeploymentError } from '../../core/errors.ts'
import { monotonicMs } from '../../core/monotonic.ts'
import type { HostCommand } from '../../core/plan/host-config.ts'
import { allowedEnvironment, runChild } from '../files/child-process.ts'
import { changedVariable } from '../services/environment.ts'
import { describeEnd } from '../services/supervise.ts'
import type { Deployment } from '../transaction/context.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'

export interface HostCommandRequest {
  /** The command's key in the host config: `provision.greeter`. */
  name: string
  command: HostCommand
  /** Appended to the command's own arguments. */
  args: readonly string[]
  /** Whether the deployment has so far changed anything that the host runs. */
  changed: boolean
  /** Variables for this command only, in addition to those for the deployment's facts. */
  variables: Readonly<Record<string, string>>
}

/**
 * Runs a command from the host config with an allow-listed environment, in its own process group and without input.
 * Logs how long the command took. Throws DeploymentError `step_failed` or `step_timed_out`, with how the command ended
 * and the beginning of its output. Also throws the signal's reason.
 */
export async function runHostCommand({ tools, record }: Deployment, request: HostCommandRequest): Promise<void> {
  const { command, env, timeoutSeconds } = request.command
  const [program, ...args] = command
  const started = monotonicMs()
  const end = await runChild({
    command: [program, ...args, ...request.args],
    env: allowedEnvironment({
      ...factVariables(record.facts),
      ...changedVariable(request),
      ...env,
      ...request.variables,
    }),
    timeoutMs: timeoutSeconds * 1000,
    signal: tools.signal,
  })
  if (end.kind === 'exited' && end.code === 0) {
    const took = Math.round(monotonicMs() - started)
    return tools.log.info(`${request.name} of the host config ran ${program}, which succeeded after ${took} ms.`)
  }
  const code = end.kind === 'timed_out' ? 'step_timed_out' : 'step_failed'
  throw new DeploymentError(
    code,
    `${request.name} of the host config failed: ${program} ${describeEnd(end)} (timeout ${timeoutSeconds} s).`,
  )
}

function factVariables(facts: DeploymentFacts): Record<string, string> {
  return {
    DEPLOYMENT_ID: facts.deployment_id,
    DEPLOYMENT_KIND: facts.kind ?? '',
    DEPLOYMENT_SLUG: facts.slug ?? '',
    DEPLOYMENT_VERSION: facts.version ?? '',
    DEPLOYMENT_PREVIOUS_VERSION: facts.previous_version ?? '',
    DEPLOYMENT_HOST_ID: facts.host_id,
  }
}
