import { installThings } from '../install/deployment/install.ts'
import type { OpenDeployment } from '../install/deployment/session.ts'
import type { Installation } from '../install/host/installed.ts'
import type { PreviousInstall } from '../install/host/previous-install.ts'
import { buildTreeRecord, type TreeRecord } from '../install/host/tree-record.ts'
import type { NewThing } from '../install/steps/step-context.ts'
import type { Prepared } from './prepare.ts'
import { originOf } from './previous.ts'
import type { Run } from './run.ts'

/** The states `installing` and `healthchecking`: the plan's steps in their order. Returns what is to be committed. */
export async function installPrepared(
  run: Run,
  prepared: Prepared,
  previous: PreviousInstall,
  deployment: OpenDeployment,
): Promise<Installation> {
  const { steps, snapshot, hostConfig, skipped } = prepared.ready
  const order = {
    steps,
    snapshot,
    hostConfig,
    skipped,
    things: [describeThing(run, prepared, previous)],
    oldThings: [],
    origin: originOf(run),
    async beforeStep({ action }: { action: string }) {
      if (action === 'healthcheck' && run.machine.current === 'installing') await run.enter('healthchecking')
    },
  }
  const installation = await installThings(run, order, deployment)
  if (run.machine.current === 'installing') await run.enter('healthchecking')
  return installation
}

function describeThing(run: Run, prepared: Prepared, previous: PreviousInstall): NewThing {
  let record: TreeRecord | undefined
  return {
    shelf: run.shelf,
    id: prepared.ready.id,
    version: prepared.version,
    artifactSha256: prepared.artifactSha256,
    staged: prepared.staged,
    get record() {
      record ??= buildTreeRecord(prepared.tree, run.request.keepPaths)
      return record
    },
    environment: prepared.pluginYaml?.environment ?? { required: [], optional: [] },
    previous,
  }
}
