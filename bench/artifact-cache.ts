import { execFileSync } from 'node:child_process'
import { createCipheriv, createHmac, generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import {
  createReadStream,
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createZstdCompress } from 'node:zlib'
import AdmZip from 'adm-zip'
import { isInstalled } from './programs.ts'
import { addProjectFiles, pluginIds, readSampleText, type SourceRecipe, writeSourceTree } from './source-tree.ts'
import {
  type Artifact,
  type Format,
  type SealedArtifact,
  SIGNING_SECRET,
  SLUG,
  type Version,
  versionName,
  type Workload,
  type ZipArtifact,
} from './workloads.ts'

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

/** Writes a ZIP with the folder as its only top-level directory, like a code host's archive. */
function zipFolder(folder: string, zipPath: string): void {
  if (isInstalled('zip')) {
    execFileSync('zip', ['-q', '-r', '-6', zipPath, basename(folder)], { cwd: dirname(folder) })
  } else {
    const zip = new AdmZip()
    zip.addLocalFolder(folder, basename(folder))
    zip.writeZip(zipPath)
  }
}

/** Signs a ZIP as its developer does (contract 2.1). */
async function signZip(path: string, version: string): Promise<ZipArtifact> {
  const hmac = createHmac('sha256', SIGNING_SECRET)
  for await (const chunk of createReadStream(path)) hmac.update(chunk)
  return { format: 'zip', path, size: statSync(path).size, version, signature: `hmac_sha256:${hmac.digest('hex')}` }
}

const NONCE_BYTES = 12
const RAW_KEY_BYTES = 32
const CHUNK_BYTES = 1024 * 1024

/**
 * Seals a project's folder in the encrypted artifact format: a nonce, then a tar that is compressed with zstd and
 * encrypted with AES-256-GCM, then the tag. An Ed25519 signature covers all of it. Throws if this machine has no `tar`.
 */
async function seal(project: string, path: string, version: string): Promise<SealedArtifact> {
  const tar = `${path}.tar`
  const dek = randomBytes(32)
  try {
    execFileSync('tar', ['-cf', tar, '-C', project, '.'])
    await encrypt(tar, path, dek)
  } finally {
    rmSync(tar, { force: true })
  }
  return { format: 'sealed', path, size: statSync(path).size, version, dek: dek.toString('base64'), ...signFile(path) }
}

async function encrypt(tar: string, path: string, dek: Buffer): Promise<void> {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv('aes-256-gcm', dek, nonce)
  const source = createReadStream(tar, { highWaterMark: CHUNK_BYTES })
  await pipeline(
    source,
    createZstdCompress({ chunkSize: CHUNK_BYTES }),
    async function* sealed(compressed) {
      yield nonce
      for await (const chunk of compressed) yield cipher.update(chunk)
      yield cipher.final()
      yield cipher.getAuthTag()
    },
    createWriteStream(path),
  )
}

function signFile(path: string): { signature: string; signerPublicKey: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const signature = sign(null, readFileSync(path), privateKey).toString('base64')
  const der = publicKey.export({ format: 'der', type: 'spki' })
  return { signature, signerPublicKey: der.subarray(-RAW_KEY_BYTES).toString('base64') }
}
