import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Artifact } from './artifact.ts'
import { addProjectFiles } from './project-tree.ts'
import { SLUG, type Version, versionName } from './release.ts'
import { readSampleText } from './sample-text.ts'
import { seal } from './seal.ts'
import { signZip } from './sign-zip.ts'
import { writeSourceTree } from './source-tree.ts'
import type { Format, Workload } from './workloads.ts'
import { zipFolder } from './zip-folder.ts'

export interface ArtifactCache {
  /** The artifact of one version, made where it is not there from an earlier run. */
  get(workload: Workload, format: Format, version: Version): Promise<Artifact>
}

/** Artifacts below `folder`, which is the caller's own and private. */
export function openArtifactCache(folder: string): ArtifactCache {
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  let sample: Buffer | undefined
  return {
    async get(workload, format, version) {
      const record = join(folder, `${format}-${workload.files}-${workload.bytes}-v${version}.json`)
      if (!existsSync(record)) {
        sample ??= readSampleText()
        await makeArtifact({ workload, format, version, sample }, record)
      }
      return JSON.parse(readFileSync(record, 'utf8')) as Artifact
    },
  }
}

interface Recipe {
  workload: Workload
  format: Format
  version: Version
  sample: Buffer
}

/** The record comes last, by a rename: where it is, the artifact is complete. */
async function makeArtifact(recipe: Recipe, record: string): Promise<void> {
  process.stderr.write(`Making the ${recipe.format} artifact ${recipe.workload.name} version ${recipe.version}.\n`)
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

async function makeZip({ workload, version, sample }: Recipe, work: string, path: string): Promise<Artifact> {
  const folder = join(work, `${SLUG}-${versionName(version)}`)
  mkdirSync(folder)
  writeSourceTree(workload, version, sample, folder)
  rmSync(path, { force: true })
  zipFolder(folder, path)
  return signZip(path, versionName(version))
}

async function makeSealed({ workload, version, sample }: Recipe, work: string, path: string): Promise<Artifact> {
  const project = join(work, 'project')
  const plugin = join(project, 'plugins', SLUG)
  mkdirSync(plugin, { recursive: true })
  writeSourceTree(workload, version, sample, plugin)
  addProjectFiles(project, versionName(version))
  return seal(project, path, versionName(version))
}
