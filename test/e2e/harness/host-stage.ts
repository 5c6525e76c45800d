import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import type { StageOrigin } from '../../../local/stage.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'
import { preparedOnce } from './prepared-once.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from './stage.ts'

/** A stage whose host has stand-ins for the supervisors, and a host config. */
export interface HostStage extends Stage {
  readonly standIns: StandIns
  writeHostConfig(text: string): void
  /** Deploys with the host config, and with the stand-ins first on PATH. */
  deployHere(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
}

export async function openHostStage(origin?: StageOrigin): Promise<HostStage> {
  const stage = await openStage(origin)
  const standIns = makeStandIns(join(stage.root, 'plugins/greeter/src/main.py'))
  const deployHere: HostStage['deployHere'] = (inputs = {}, run = {}) =>
    stage.deploy({ 'host-config': 'host-config.yaml', ...inputs }, { ...run, env: { PATH: standIns.path, ...run.env } })
  return {
    ...stage,
    standIns,
    deployHere,
    writeHostConfig: text => writeFileSync(join(stage.workspace.path, 'host-config.yaml'), text),
    async close(keep) {
      standIns.close()
      await stage.close(keep)
    },
  }
}

/** Opens a stage with 1.0.0 installed but not started, and 2.0.0 on the hub. */
export async function openOldHost(): Promise<HostStage> {
  return await openHostStage(await preparedOnce('an old host', prepareOld))
}

async function prepareOld(): Promise<Stage> {
  const stage = await openStage()
  await stage.publish('1.0.0', versionFiles('1.0.0'))
  const { exitCode, log } = await stage.deploy()
  if (exitCode !== 0) throw new Error(log)
  await stage.publish('2.0.0', versionFiles('2.0.0'))
  return stage
}

/** A plan that installs the plugin and then does these steps, each after the one before. */
export function planWith(...steps: string[]): string {
  const ids = ['files', ...steps.map((_, index) => `s${index + 1}`)]
  const lines = steps.map((step, index) => `  - {id: ${ids[index + 1]}, depends_on: [${ids[index]}], ${step}}\n`)
  return `${PLUGIN_PLAN}${lines.join('')}`
}

/** The files of a version for the stand-ins: they treat the text of src/main.py as the running version. */
export function versionFiles(version: string): Record<string, string> {
  return pluginFiles(version, { 'src/main.py': version, '.env.template': 'A=1\n' })
}
