import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Artifact } from './artifact.ts'
import { addProjectFiles, pluginIds } from './project-tree.ts'
import { SLUG, type Version, versionName } from './release.ts'
import { readSampleText } from './sample-text.ts'
import { seal } from './seal.ts'
import { signZip } from './sign-zip.ts'
import { type SourceRecipe, writeSourceTree } from './source-tree.ts'
import type { Format, Workload } from './workloads.ts'
import { zipFolder } from './zip-folder.ts'

export interface ArtifactCache {
  /** Returns the artifact of one version of a workload, and makes it first if the cache does not have it. */
  get(workload: Workload, format: Format, version: Version): Promise<Artifact>
}

/** Caches artifacts below `folder`, which must be private to the caller. */
export function openArtifactCache(folder: string): ArtifactCache {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  let sample: Buffer | undefined
  return {
    async get(workload, format, version) {
      const { files, bytes, parts } = workload
      const inParts = parts === undefined ? '' : `-${parts}`
      const record = join(folder, `${format}-${files}-${bytes}${inParts}-v${version}.json`)
      if (!existsSync(record)) {
        sample ??= readSampleText()
        await makeArtifact({ workload, format, version, sample }, record)
      }
      return JSON.parse(readFileSync(record, 'utf8')) as Artifact
    },
  }
}

interface Recipe extends SourceRecipe {
  readonly format: Format
}

/** Renames the record into place last, so that an artifact with a record is complete. */
async function makeArtifact(recipe: Recipe, record: string): Promise<void> {
  process.stderr.write(`Making version ${recipe.version} of ${recipe.workload.name} (${recipe.format}).\n`)
  const work = mkdtempSync(`${record}.`)
  try {
    const path = record.replace(/json$/, recipe.format)
    const artifact = recipe.format === 'zip' ? await makeZip(recipe, work, path) : await makeSealed(recipe, work, path)
    const complete = join(work, 'record.json')
    writeFileSync(complete, JSON.stringify(artifact))
    renameSync(complete, record)
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

async function makeZip(recipe: Recipe, work: string, path: string): Promise<Artifact> {
  const version = versionName(recipe.version)
  const folder = join(work, `${SLUG}-${version}`)
  mkdirSync(folder)
  writeSourceTree(recipe, folder)
  rmSync(path, { force: true })
  zipFolder(folder, path)
  return await signZip(path, version)
}

async function makeSealed(recipe: Recipe, work: string, path: string): Promise<Artifact> {
  const version = versionName(recipe.version)
  const project = join(work, 'project')
  const ids = pluginIds(recipe.workload.parts)
  for (const [part, id] of ids.entries()) {
    const plugin = join(project, 'plugins', id)
    mkdirSync(plugin, { recursive: true })
    writeSourceTree(recipe, plugin, part)
  }
  addProjectFiles(project, version, ids)
  return await seal(project, path, version)
}
