import { join } from 'node:path'
import { MAX_SMALL_FILE_BYTES } from '../core/limits.ts'
import { parsePluginYaml } from '../core/plugin-yaml.ts'
import { findInstalled, readInstalled } from './installed.ts'
import { installPath, type Layout, type Place } from './layout.ts'
import { readSmallFile } from './small-file.ts'
import type { Previous } from './steps/step-context.ts'

/** What stands in a place before a deployment: our own record of it, and its version as far as anything says so. */
export async function readPrevious(layout: Layout, { shelf, id }: Place): Promise<Previous> {
  const installed = findInstalled(await readInstalled(layout), shelf, id)
  return { installed, version: installed?.version ?? (await readForeignVersion(installPath(layout, shelf, id))) }
}

/** What stands in the place without a record of ours may still say in its plugin.yaml which version it is. */
async function readForeignVersion(path: string): Promise<string | null> {
  try {
    const text = await readSmallFile(join(path, 'plugin.yaml'), MAX_SMALL_FILE_BYTES)
    return text === undefined ? null : (parsePluginYaml(text).version ?? null)
  } catch {
    return null
  }
}
