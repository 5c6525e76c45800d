import type { Log } from '../../core/log.ts'
import { type HostConfig, parseHostConfig } from '../../core/plan/host-config.ts'
import type { Transitions } from '../../core/state-machine.ts'
import type { SourceFile } from '../../core/yaml/problems.ts'
import type { Grace } from '../files/child-process.ts'
import type { HostAccess } from '../host/ownership.ts'
import type { FlowName } from '../journal/facts.ts'
import type { SecretKeeper } from '../transaction/record.ts'
import type { OnFilesRestored } from '../transaction/rollback.ts'
import type { ReportSender } from './sender.ts'

/** The state table of each flow. */
export type Flows = Readonly<Record<FlowName, Transitions<string>>>

/**
 * A project root, and the means to log and report what happens there: everything needed to end or recover a deployment.
 */
export interface HostContext extends HostAccess {
  readonly log: Log
  readonly secrets: Pick<SecretKeeper, 'redact' | 'know'>
  /** Undefined if there is no hub to report to. */
  readonly sender: ReportSender | undefined
  /** The limits for the work after a cancel. A report that was not sent within them waits in the outbox. */
  readonly grace: Grace
  /** The number of local reports to keep for each plugin, service or project; if undefined, none are removed. */
  readonly keepReports?: number | undefined
  /**
   * The operator's host config for this run. Only from there come the services that a recovery restarts, and their
   * health checks.
   */
  readonly hostConfig?: SourceFile | undefined
  /**
   * Returns the ids that the inputs and the operator's plan of this run name; none of them comes from a file below the
   * project root. Undefined if there are none.
   */
  readonly ids?: (() => readonly (string | null)[]) | undefined
  readonly run: OwnRun
  readonly flows: Flows
  readonly recovery?: RecoveryEvents
}

/** The run that works with the host. */
export interface OwnRun {
  /** A UUID that a main step and its post step share. */
  readonly id: string
  /** The URL of the workflow run, which the lock contains while the run has the host; null outside a workflow. */
  readonly url: string | null
}

export interface RecoveryEvents {
  /** Set if services of this host wait for the recovery to restore the files. */
  readonly onFilesRestored?: OnFilesRestored
  /** Called with one sentence about the recovered deployment. */
  readonly onRecovered?: ((sentence: string) => void) | undefined
}

/** Returns the host config of this run, or, if the run has none or an unusable one, why services are unknown. */
export function readHostConfig({ hostConfig }: Pick<HostContext, 'hostConfig'>): HostConfig | string {
  if (hostConfig === undefined) return 'there is no host config'
  try {
    return parseHostConfig(hostConfig.text, hostConfig.path)
  } catch {
    return `the host config ${hostConfig.path} cannot be used`
  }
}
