import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import type { InstalledRow } from '../../../src/install/host/installed/rows.ts'
import { preparedOnce } from './prepared-once.ts'
import { openStage, pluginFiles, type Stage, writeFiles } from './stage.ts'

/**
 * A host on which these versions of greeter were deployed one after the other. After each deployment, the host wrote
 * its own files.
 */
export async function openRetainingHost(t: TestContext, versions = ['1.0.0', '2.0.0']): Promise<Stage> {
  const stage = await openStage(await preparedOnce(`a host with ${versions}`, () => deployAll(versions)))
  t.after(() => stage.close())
  return stage
}

async function deployAll(versions: readonly string[]): Promise<Stage> {
  const stage = await openStage()
  for (const version of versions) {
    await stage.publish(version, pluginFiles(version))
    const { exitCode, log } = await stage.deploy({ version })
    if (exitCode !== 0) throw new Error(log)
    writeFiles(join(stage.root, 'plugins/greeter'), { '.env': 'LANGUAGE=en\n', 'data/visitors': `${version}\n` })
  }
  return stage
}

/** Runs the rollback action, by default without a hub. */
export function rollBack(
  { workspace, root }: Pick<Stage, 'workspace' | 'root'>,
  inputs: Record<string, string> = {},
  run: Partial<ActionRun> = {},
): Promise<ActionResult> {
  const given = { id: 'greeter', 'project-root': root, 'host-id': 'host-1', ...inputs }
  return runAction({ action: 'rollback', workspace, ...run, inputs: given })
}

export function installedRow({ root }: Pick<Stage, 'root'>): InstalledRow {
  return JSON.parse(readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8')).installed[0]
}
