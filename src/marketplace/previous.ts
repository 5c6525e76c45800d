import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parsePluginYaml } from '../core/plugin-yaml.ts'
import { findInstalled, readInstalled } from '../install/installed.ts'
import { installPath } from '../install/layout.ts'
import type { Previous } from '../install/steps/step-context.ts'
import type { Run } from './run.ts'

/** What a deployment replaces: our own record of it, and its version as far as anything says so. */
export async function readPrevious(run: Run, id: string): Promise<Previous> {
  const installed = findInstalled(await readInstalled(run.layout), run.shelf, id)
  const version = installed?.version ?? (await readForeignVersion(installPath(run.layout, run.shelf, id)))
  await run.record.update({ previous_version: version })
  return { installed, version }
}

/** What stands in the place without a record of ours may still say in its plugin.yaml which version it is. */
async function readForeignVersion(path: string): Promise<string | null> {
  try {
    return parsePluginYaml(await readFile(join(path, 'plugin.yaml'), 'utf8')).version ?? null
  } catch {
    return null
  }
}
