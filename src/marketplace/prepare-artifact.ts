import { createHash } from 'node:crypto'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { ArtifactError } from '../core/errors.ts'
import { type PluginYaml, parsePluginYaml } from '../core/plugin-yaml.ts'
import { type VerifiedArtifact, verifyHmacSignature, verifyPinnedDigest } from '../core/signature.ts'
import { makeOpenDirectory, writeNewFile } from '../install/durable-files.ts'
import { type ExtractedTree, extractZip } from '../install/extract-zip.ts'
import { requireSpace } from '../install/host.ts'
import type { InstalledRow } from '../install/installed.ts'
import { buildPluginSig, needsPluginSig } from '../install/plugin-sig.ts'
import { openPrivateFile } from '../install/private-file.ts'
import { bindToTree, type ReadyPlan } from './bind-plan.ts'
import type { ServedArtifact } from './client.ts'
import { type FetchedVersion, fetchArtifact } from './fetch-artifact.ts'
import type { Run } from './run.ts'
import { type DeployedVersion, decideVersion, refuseDowngrade, refuseReusedVersion } from './served-version.ts'

/** A verified artifact, extracted and signed for this host, ready to be put in its place. */
export interface Prepared {
  ready: ReadyPlan
  version: string
  artifactSha256: string
  /** The folder that holds the new tree. */
  staged: string
  tree: Pick<ExtractedTree, 'files' | 'symlinks'>
  /** Undefined for a service. */
  pluginYaml: PluginYaml | undefined
}

/** The states from `fetching` to `resolving_sequence`: touches nothing but `folder`, which must exist and be private. */
export async function prepareArtifact(
  run: Run,
  ready: ReadyPlan,
  folder: string,
  installed: InstalledRow | undefined,
): Promise<Prepared> {
  const file = await openPrivateFile(run.tools.temporaryFolder)
  try {
    await run.enter('fetching')
    const fetched = await fetchArtifact(run, file.fd, installed?.version ?? null)
    await run.enter('verifying_signature')
    const artifact = await verify(run, fetched.served)
    await run.enter('extracting')
    const staged = join(folder, 'tree')
    const tree = await extract(run, artifact, staged)
    const pluginYaml = run.request.kind === 'plugin' ? await readPluginYaml(staged) : undefined
    const { version } = await checkVersion(run, fetched, pluginYaml, installed)
    await run.enter('loading_plan')
    bindToTree(ready, tree)
    const signed = await signForHost(run, ready.id, staged, tree, pluginYaml)
    await run.enter('resolving_sequence')
    run.tools.log.info(`Steps: ${ready.steps.map(step => `${step.id} (${step.action})`).join(' → ')}`)
    return { ready, version, artifactSha256: artifact.sha256, staged, tree: signed, pluginYaml }
  } finally {
    await file.close()
  }
}

async function verify(run: Run, served: ServedArtifact): Promise<VerifiedArtifact> {
  const { artifact, hmac, signatureHeader, repo } = served
  await run.record.update({ artifact_sha256: artifact.sha256, artifact_size: artifact.size, repo: repo ?? null })
  const verified = verifyHmacSignature(artifact, hmac, signatureHeader)
  const pinned = run.request.artifactSha256
  if (pinned !== undefined) verifyPinnedDigest(verified, pinned)
  run.tools.log.info(`The signature holds for ${artifact.size} bytes, sha256 ${artifact.sha256}.`)
  return verified
}

async function extract(run: Run, artifact: VerifiedArtifact, staged: string): Promise<ExtractedTree> {
  await requireSpace(join(staged, '..'), artifact.size)
  await makeOpenDirectory(staged)
  const tree = await extractZip(artifact, staged, run.request.extraction, run.tools.signal)
  const flattened = tree.flattened === null ? '' : `, out of the top-level directory ${tree.flattened}`
  run.tools.log.info(`${tree.files.length} files, ${tree.bytes} bytes${flattened}.`)
  return tree
}

async function readPluginYaml(staged: string): Promise<PluginYaml> {
  const text = await readFile(join(staged, 'plugin.yaml'), 'utf8').catch(error => {
    throw new ArtifactError(
      'not_a_plugin',
      'The artifact has no plugin.yaml at its root, so it is not a plugin: nothing was installed. For a service set kind: service.',
      { cause: error },
    )
  })
  return parsePluginYaml(text)
}

async function checkVersion(
  run: Run,
  { asked, served }: FetchedVersion,
  pluginYaml: PluginYaml | undefined,
  installed: InstalledRow | undefined,
): Promise<DeployedVersion> {
  const decided = decideVersion(asked, served.headerVersion, pluginYaml)
  await run.record.update({ version: decided.version, version_source: decided.source })
  const { version, allowDowngrade, artifactSha256 } = run.request
  if (version === 'latest' && !allowDowngrade) refuseDowngrade(decided.version, installed?.version ?? null)
  refuseReusedVersion(decided.version, served.artifact.sha256, installed, artifactSha256)
  return decided
}

async function signForHost(
  run: Run,
  id: string,
  staged: string,
  tree: ExtractedTree,
  pluginYaml: PluginYaml | undefined,
): Promise<Prepared['tree']> {
  const secret = run.request.pluginSecretKey
  if (pluginYaml === undefined) {
    if (secret !== undefined) run.tools.log.notice('plugin-secret-key has no effect for a service.')
    return tree
  }
  if (secret === undefined || !needsPluginSig(pluginYaml)) return tree
  const text = await buildPluginSig(staged, id, pluginYaml, secret)
  await rm(join(staged, 'plugin.sig'), { force: true })
  await writeNewFile(join(staged, 'plugin.sig'), text, 0o644)
  const isOther = ({ path }: { path: string }): boolean => path !== 'plugin.sig'
  const sha256 = createHash('sha256').update(text).digest('hex')
  const signature = { path: 'plugin.sig', size: Buffer.byteLength(text), mode: 0o644 as const, sha256 }
  return { files: [...tree.files.filter(isOther), signature], symlinks: tree.symlinks.filter(isOther) }
}
