import { join } from 'node:path'
import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import { type VerifiedArtifact, verifyHmacSignature, verifyPinnedDigest } from '../core/trust/signature.ts'
import { refuseDowngrade, refuseReusedVersion } from '../core/trust/version-rules.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { extractZip } from '../install/archive/extract-zip.ts'
import { makeOpenDirectorySync } from '../install/files/durable-files.ts'
import type { ExtractedTree } from '../install/files/extracted-tree.ts'
import { openPrivateFileSync } from '../install/files/private-file.ts'
import { installPath } from '../install/host/layout.ts'
import type { PreviousInstall } from '../install/host/previous-install.ts'
import { versionsFrom } from '../install/host/previous-install.ts'
import { readPluginYaml } from '../install/host/read-plugin-yaml.ts'
import { signForHost } from '../install/host/sign-for-host.ts'
import { type FetchedVersion, fetchArtifact } from './fetch-artifact.ts'
import { bindToTree, type ReadyArtifactPlan } from './plan.ts'
import { originOf } from './previous.ts'
import type { Run } from './run.ts'
import { type DeployedVersion, decideVersion } from './version.ts'

/** A verified artifact, extracted and signed for this host, ready to be put in its place. */
export interface Prepared {
  ready: ReadyArtifactPlan
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
  ready: ReadyArtifactPlan,
  folder: string,
  previous: PreviousInstall,
): Promise<Prepared> {
  const file = openPrivateFileSync(run.tools.temporaryFolder)
  try {
    await run.enter('fetching')
    const fetched = await fetchArtifact(run, file.fd, previous.version)
    await run.enter('verifying_signature')
    const artifact = await verify(run, fetched, previous)
    await run.enter('extracting')
    const staged = join(folder, 'tree')
    const tree = await extract(run, artifact, staged)
    const pluginYaml = run.request.kind === 'plugin' ? readPluginYaml(staged) : undefined
    const { version } = await checkVersion(run, fetched, pluginYaml, previous)
    await run.enter('loading_plan')
    bindToTree(ready, tree, run.request.keepPaths)
    const signed = await sign(run, ready.id, staged, tree, pluginYaml)
    await run.enter('resolving_sequence')
    run.tools.log.info(`Steps: ${ready.steps.map(step => `${step.id} (${step.action})`).join(' → ')}`)
    return { ready, version, artifactSha256: artifact.sha256, staged, tree: signed, pluginYaml }
  } finally {
    file.close()
  }
}

async function verify(
  run: Run,
  { served, asked }: FetchedVersion,
  previous: PreviousInstall,
): Promise<VerifiedArtifact> {
  const { artifact, hmac, signatureHeader, repo } = served
  await run.record.update({ artifact_sha256: artifact.sha256, artifact_size: artifact.size, repo: repo ?? null })
  const verified = verifyHmacSignature(artifact, hmac, signatureHeader)
  const pinned = run.request.artifactSha256
  if (pinned !== undefined) verifyPinnedDigest(verified, pinned)
  run.tools.log.info(`The signature holds for ${artifact.size} bytes, sha256 ${artifact.sha256}.`)
  if (asked !== undefined)
    refuseReusedVersion({ version: asked, sha256: artifact.sha256 }, versionsFrom(previous, originOf(run)), pinned)
  return verified
}

async function extract(run: Run, artifact: VerifiedArtifact, staged: string): Promise<ExtractedTree> {
  makeOpenDirectorySync(staged)
  const tree = await extractZip(artifact, staged, run.request.extraction, run.tools.signal)
  const flattened = tree.flattened === null ? '' : `, out of the top-level directory ${tree.flattened}`
  run.tools.log.info(`${tree.files.length} files, ${tree.bytes} bytes${flattened}.`)
  return tree
}

async function checkVersion(
  run: Run,
  fetched: FetchedVersion,
  pluginYaml: PluginYaml | undefined,
  previous: PreviousInstall,
): Promise<DeployedVersion> {
  const { asked, served } = fetched
  const decided = decideVersion(asked, served.headerVersion, pluginYaml)
  await run.record.update({ version: decided.version, version_source: decided.source })
  tellOtherVersion(run, fetched, decided.version)
  const { version, allowDowngrade, artifactSha256 } = run.request
  if (version === 'latest' && !allowDowngrade) refuseDowngrade(decided.version, previous.version)
  refuseReusedVersion(
    { version: decided.version, sha256: served.artifact.sha256 },
    versionsFrom(previous, originOf(run)),
    artifactSha256,
  )
  return decided
}

function tellOtherVersion({ tools }: Run, { asked, unserved }: FetchedVersion, came: string): void {
  if (unserved !== undefined)
    tools.log.notice(`The hub lists ${unserved} as latest but does not serve it; it served ${came} instead.`)
  if (asked !== undefined && !isSameVersion(came, asked))
    tools.log.notice(`Version ${asked} was asked for; by the hub's header, which is not signed, ${came} came.`)
}

async function sign(
  { request, tools, layout, shelf }: Run,
  id: string,
  staged: string,
  tree: ExtractedTree,
  pluginYaml: PluginYaml | undefined,
): Promise<Prepared['tree']> {
  const secret = request.pluginSecretKey
  const kept = { installed: installPath(layout, { shelf, id }), keepPaths: request.keepPaths, log: tools.log }
  if (pluginYaml !== undefined) return signForHost({ id, staged, tree, pluginYaml, ...kept }, secret)
  if (secret !== undefined) tools.log.notice('plugin-secret-key has no effect for a service.')
  return tree
}
