import { join } from 'node:path'
import type { HostConfig } from '../core/plan/host-config.ts'
import { extractTar } from '../install/archive/extract-tar.ts'
import { unseal } from '../install/archive/unseal.ts'
import { makeOpenDirectorySync } from '../install/files/durable-files.ts'
import { checkHost, checkShelf } from '../install/host/readiness.ts'
import { bindProject, type ReadyProject } from './bind-project.ts'
import { readInstalledParts } from './installed-parts.ts'
import { requestArtifact } from './request-artifact.ts'
import type { Run } from './run.ts'
import { downloadSealed, verifySealed } from './sealed-artifact.ts'
import { verifyProject } from './verify-project.ts'

/**
 * The states from `authenticating` to `resolving_sequence`, each trusting only what the one before has vouched for; touches
 * nothing but `folder`, which must exist and be private. Nothing of the plaintext is used before its tag has held.
 */
export async function prepareProject(
  run: Run,
  hostConfig: HostConfig | undefined,
  folder: string,
): Promise<ReadyProject> {
  const { request, client, tools } = run
  checkInstalledParts(run)
  await run.enter('authenticating')
  await client.authenticate()
  await run.enter('requesting_artifact')
  const offer = await requestArtifact(run)
  await run.enter('downloading')
  const sealed = await downloadSealed(run, offer)
  await run.enter('verifying_signature')
  const verified = await verifySealed(run, offer, sealed)
  await run.enter('obtaining_key')
  checkInstalledParts(run)
  const dek = await client.authorize(request.deploymentCredential, offer.descriptor.signature)
  await run.enter('decrypting')
  const opened = await unseal(verified, dek, tools.signal).finally(() => dek.fill(0))
  await run.enter('extracting')
  const content = join(folder, 'content')
  makeOpenDirectorySync(content)
  const tree = await extractTar(opened, content, request.extraction, tools.signal)
  tools.log.info(`${tree.files.length} files, ${tree.bytes} bytes.`)
  await run.enter('verifying_manifest')
  const project = await verifyProject(run, offer.version, content, tree)
  await run.enter('validating_project')
  const ready = await bindProject(run, project, verified.sha256, hostConfig)
  await run.enter('resolving_sequence')
  for (const { shelf, id } of ready.oldThings) tools.log.info(`This version does not bring ${shelf}/${id}: it goes.`)
  tools.log.info(`Steps: ${ready.bound.steps.map(step => `${step.id} (${step.action})`).join(' → ')}`)
  return ready
}

/** What can be said of the host before it is known what the artifact brings: both shelves, and the parts that are there. */
function checkInstalledParts({ layout, request }: Run): void {
  for (const shelf of ['plugins', 'extensions'] as const) checkShelf(layout, shelf)
  const parts = readInstalledParts(layout, request.projectId)
  for (const place of parts) checkHost(layout, place)
}
