import { join } from 'node:path'
import { parsePluginYaml } from '../core/plugin-yaml.ts'
import { findInstalled, readInstalled } from '../install/installed.ts'
import { installPath } from '../install/layout.ts'
import { readSmallFile } from '../install/small-file.ts'
import type { Previous } from '../install/steps/step-context.ts'
import type { Run } from './run.ts'

const MAX_PLUGIN_YAML_BYTES = 256 * 1024

/** Notes what is recorded of this slug before the plan says where it goes, so that also a refused run can tell it. */
export async function noteInstalledVersion({ layout, request, record }: Run): Promise<void> {
  const rows = await readInstalled(layout)
  const installed = rows.find(({ kind, slug }) => kind === request.kind && slug === request.slug)
  await record.update({ previous_version: installed?.version ?? null })
}

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
    const text = await readSmallFile(join(path, 'plugin.yaml'), MAX_PLUGIN_YAML_BYTES)
    return text === undefined ? null : (parsePluginYaml(text).version ?? null)
  } catch {
    return null
  }
}
