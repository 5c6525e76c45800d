import { createHash, type KeyObject } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { findProjectVersion } from '../../hub/project/catalogue.ts'
import { createProjectKey } from '../../hub/project/project-keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { sealProject } from '../../hub/project/seal.ts'
import { createSigningKey, readSigningKey, signerPublicKey } from '../../hub/project/signing-key.ts'
import { readSourceTree } from '../../hub/project/source-tree.ts'
import type { LocalStage } from '../../local/stage.ts'
import type { Project } from './project.ts'
import { alreadyPublished, type Published } from './published.ts'

const SIGNING_KEY_FILE = 'signing-key.pem'
const CONTENTS_FILE = 'projects.json'

const contentsSchema = z.record(z.string(), z.string())

/**
 * Seals and publishes the sources in a folder as the project's version. Sealing the same files again produces different
 * bytes, so the stage records what it has sealed: a version with the same files counts as published. Throws HubError as
 * sealProject and publishProject do, and 409 if the version is already published with different files.
 */
export async function releaseProject(stage: LocalStage, project: Project, source: string): Promise<Published> {
  const { slug: project_id, version, pluginsDirname } = project
  const contents = readContents(stage)
  const name = `${project_id} ${version}`
  const content = contentOf(source, pluginsDirname)
  const there = findProjectVersion(stage.store, { project_id, version })
  if (there !== undefined && contents[name] === content) return { ...there, leftOut: [] }
  if (there !== undefined) throw alreadyPublished(project)
  const sealed = await sealProject({ source, version, pluginsDirname, signingKey: signingKeyOf(stage) })
  const { size, sha256 } = await publishProject(stage.store, sealed)
  writeFileSync(join(stage.folder, CONTENTS_FILE), JSON.stringify({ ...contents, [name]: content }))
  return { size, sha256, leftOut: sealed.leftOut }
}

/** The inputs of the project action that the publisher and the hub's administrator give the operator. */
export function projectAccess(stage: LocalStage, { slug: project_id, version }: Project): Record<string, string> {
  const newKey = (purpose: 'devkey' | 'credential'): string =>
    createProjectKey(stage.store, { project_id, purpose, name: 'operator' }).value
  return {
    'project-id': project_id,
    version,
    devkey: newKey('devkey'),
    'deployment-credential': newKey('credential'),
    'signer-public-key': signerPublicKey(signingKeyOf(stage)),
  }
}

function signingKeyOf({ folder }: LocalStage): KeyObject {
  const path = join(folder, SIGNING_KEY_FILE)
  return existsSync(path) ? readSigningKey(path) : createSigningKey(path)
}

function readContents({ folder }: LocalStage): Record<string, string> {
  const path = join(folder, CONTENTS_FILE)
  return existsSync(path) ? contentsSchema.parse(JSON.parse(readFileSync(path, 'utf8'))) : {}
}

/** A digest of all files that would be sealed, with their execute permission. */
function contentOf(source: string, pluginsDirname: string): string {
  const { members } = readSourceTree(source, pluginsDirname)
  const sealed = [...members.values()].map(member => ({ ...member, source: undefined }))
  return createHash('sha256').update(JSON.stringify(sealed)).digest('hex')
}
