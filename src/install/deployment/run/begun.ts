import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { begunPath } from '../../host/layout.ts'
import { isUsedInContainers } from '../../host/locks/lock.ts'
import { isInContainer, readOwnIdentity } from '../../host/locks/process-identity.ts'
import type { DeploymentEnd } from '../../transaction/end.ts'
import type { Journal, OwnJournal } from '../../transaction/journal/journal.ts'
import type { RunningDeployment } from '../deployment.ts'

/**
 * A deployment that has begun. If its run dies, another run reports the deployment, even if the dead run never had the
 * host.
 */
export interface BegunDeployment {
  /** Takes over the locked and recovered host. After this call, another run can undo the changes in this journal. */
  claimHost(): Promise<Journal>
  /**
   * Records how the deployment ended, before anything is reported. If a later run has to report the deployment, that
   * run reports the same end. Resolves to true if the end was recorded. With `isUnfinished`, the later run also
   * restores the services.
   */
  noteEnd(end: DeploymentEnd, isUnfinished?: boolean): Promise<boolean>
  /** Records that the hub has accepted the report of the recorded end, so that the report is not sent again. */
  noteReported(attempts: number): Promise<void>
  /** Discards the journal of a deployment that has changed nothing and has nothing left to report. Never throws. */
  settle(): Promise<void>
  /** Leaves the journal for the next run. */
  abandon(): void
}

/**
 * Begins a deployment on a prepared host, even while another run has the host: until this run has locked the host, its
 * journal has a name of its own. Throws file system errors.
 */
export async function beginDeployment(deployment: RunningDeployment): Promise<BegunDeployment> {
  const { host, tools } = deployment
  tools.observer.onBegun(deployment.noteRunning())
  const begun = { keepPaths: deployment.keepPaths, journal: await startJournal(deployment) }
  return {
    async claimHost() {
      const { keepPaths } = deployment
      const isThere = pathExistsSync(begunPath(host.layout, tools.deploymentId))
      // While this run waited, another run may have removed the journal, or installed a version that keeps other paths.
      if (!isThere || JSON.stringify(keepPaths) !== JSON.stringify(begun.keepPaths)) {
        const journal = await startJournal(deployment)
        begun.journal.close()
        Object.assign(begun, { keepPaths, journal })
      }
      await begun.journal.rename(host.layout.journal)
      return begun.journal
    },
    async noteEnd(end, isUnfinished = false) {
      const unfinished = isUnfinished ? { unfinished: true as const } : {}
      return (await begun.journal.append({ record: 'end', end, ...unfinished })) !== undefined
    },
    async noteReported(attempts) {
      await begun.journal.append({ record: 'reported', attempts })
    },
    settle: async () => begun.journal.discard(),
    abandon: () => begun.journal.close(),
  }
}

async function startJournal({ host, record, keepPaths }: RunningDeployment): Promise<OwnJournal> {
  const path = begunPath(host.layout, record.facts.deployment_id)
  const reportAddress = host.sender?.address ?? null
  const process = readOwnIdentity()
  const journal = await record.startJournal(
    { path, redact: host.secrets.redact },
    { reportAddress, keepPaths, process },
  )
  if (isInContainer(process) || isUsedInContainers(host.layout.lock)) await journal.hold()
  return journal
}
