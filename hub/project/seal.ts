import { type KeyObject, randomBytes, sign } from 'node:crypto'
import { z } from 'zod'
import { labelSchema, parseInput } from '../names.ts'
import { readPartSources, readProjectId, requireWorkablePlan } from './bundled-plan.ts'
import { DEK_BYTES, encryptTar, NONCE_BYTES } from './encrypt.ts'
import { buildManifest, DEFAULT_PLUGINS_DIRNAME, type Manifest } from './manifest.ts'
import { pluginsDirnameSchema, projectIdSchema, projectVersionSchema } from './names.ts'
import { measureMembers, packMembers } from './pack-members.ts'
import type { SealedRelease } from './publish.ts'
import { signerPublicKey } from './signing-key.ts'
import { readSourceTree } from './source-tree.ts'
import { withStubs } from './stubs.ts'
import { comparePaths } from './tree-digest.ts'

const factsSchema = z.object({
  projectId: projectIdSchema.optional(),
  version: projectVersionSchema,
  projectName: labelSchema.optional(),
  pluginsDirname: pluginsDirnameSchema.default(DEFAULT_PLUGINS_DIRNAME),
  builtAt: z.date().default(() => new Date()),
})

/**
 * Defaults: the plan's `project_id` for `projectId`, the project's id for `projectName`, `plugins` for
 * `pluginsDirname`, and now for `builtAt`.
 */
export type SealOptions = z.input<typeof factsSchema> & {
  /** The folder with `plugins/`, `extensions/` and `deployment/install.yaml`. */
  readonly source: string
  /** An Ed25519 private key. */
  readonly signingKey: KeyObject
  /** Creates the DEK, then the nonce. Never use the same pair for different bytes. */
  readonly random?: (bytes: number) => Buffer
}

export interface SealedProject extends SealedRelease {
  readonly bytes: Buffer
  readonly manifest: Manifest
  /** Paths in the source folder that are not sealed. */
  readonly leftOut: readonly string[]
}

/**
 * Seals a source folder in the encrypted artifact format, and signs the sealed bytes (contract 5.2, rule 4). Seals only
 * a stub of each part that comes from elsewhere. Writes nothing into the folder. The same files, facts, key and random
 * bytes give the same sealed bytes. Throws HubError 400 for a wrong option, and if a file changes in the meantime. Also
 * throws as readSourceTree, readPartSources, requireWorkablePlan and buildManifest do.
 */
export async function sealProject({
  source,
  signingKey,
  random = randomBytes,
  ...given
}: SealOptions): Promise<SealedProject> {
  const asked = parseInput(factsSchema, given)
  const read = readSourceTree(source, asked.pluginsDirname)
  const projectId = asked.projectId ?? readProjectId(read.plan)
  const facts = { ...asked, projectId, projectName: asked.projectName ?? projectId }
  const sources = readPartSources(read)
  const tree = withStubs(read, sources)
  requireWorkablePlan(tree, projectId)
  const manifest = buildManifest(tree, { ...facts, sources })
  const members = [...tree.members.values()].sort((a, b) => comparePaths(a.path, b.path))
  const key = { dek: random(DEK_BYTES), nonce: random(NONCE_BYTES) }
  const manifestJson = `${JSON.stringify(manifest, null, 2)}\n`
  const content = { manifestJson, members, time: facts.builtAt }
  const bytes = await encryptTar({ bytes: await measureMembers(content), chunks: packMembers(content) }, key)
  const release = {
    project_id: projectId,
    version: facts.version,
    signature: sign(null, bytes, signingKey).toString('base64'),
    signer_public_key: signerPublicKey(signingKey),
    dek: key.dek.toString('base64'),
    content_sha256: manifest.content_sha256,
  }
  return { bytes, release, manifest, leftOut: tree.leftOut }
}
