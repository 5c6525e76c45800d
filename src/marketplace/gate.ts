import { createHash, createHmac } from 'node:crypto'
import { close, fstatSync, type Stats } from 'node:fs'
import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import { ArchiveError, ConfigError, type DeployError, toDeployError } from '../core/errors.ts'
import type { Kind } from '../core/identifiers.ts'
import type { Log } from '../core/log.ts'
import { HostConfigError, parseHostConfigSlowly } from '../core/plan/host-config.ts'
import { PlanError } from '../core/plan/plan.ts'
import { asSentence, bytesInWords, cleanForeignText } from '../core/text.ts'
import { parseSignatureHeader, strayEnds } from '../core/trust/signature.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { type Collected, collectProblemsSlowly, type SourceFile, type SourceProblem } from '../core/yaml/problems.ts'
import { readAt } from '../install/archive/pieces.ts'
import { isSystemError, toHostError } from '../install/files/errors.ts'
import { noticeScripts, pathTest } from '../install/files/extracted-tree.ts'
import { NotReadable, openBelowSync, openPrivateFileSync } from '../install/files/open.ts'
import { makePrivateFolderSync, namePrivateFolder, removePrivateFolder } from '../install/files/remove-tree.ts'
import { hearSignals, TimeSlice } from '../install/files/time-slice.ts'
import { watchDownload } from '../install/run/deployment.ts'
import { otherFramework } from '../install/steps/loading.ts'
import { needsPluginSig, signedFiles } from '../install/steps/plugin-sig.ts'
import { describeSequence } from '../install/steps/run-steps.ts'
import type { Tools } from '../install/transaction/record.ts'
import { writeChunkSync } from '../net/download.ts'
import type { Wire } from '../net/wire.ts'
import type { DeployRequest } from './deployment.ts'
import { createMarketplaceClient, type HubBases, type ServedArtifact } from './hub.ts'
import { announceDefaultPlan, bindToFiles, type ReadyArtifactPlan, readyArtifactPlan } from './plan.ts'
import type { VerifiedVersion } from './prepare.ts'
import {
  type ArtifactRules,
  claimedVersion,
  type DeployedVersion,
  decideVersion,
  type FetchedVersion,
  fetchRequested,
  noticeOtherVersion,
  type UnpackedArtifact,
  unpackArtifact,
  verifyServed,
} from './prepare.ts'

/** The hub that serves the artifact. */
interface HubSource {
  readonly bases: HubBases
  readonly slug: string
  readonly apiKey: string
}

/** The artifact to check, and the rules that it must pass. */
export interface GateArtifact
  extends ArtifactRules,
    Pick<DeployRequest, 'version' | 'signingSecret' | 'downloadTimeoutMs' | 'maxArtifactBytes'> {
  readonly source: HubSource | LocalSource
}

/** The operator's files to check, and the plugin or service that they are for. */
export interface GateFiles {
  readonly kind: Kind
  /** Always set if there is a plan. */
  readonly slug: string | undefined
  readonly plan: SourceFile | undefined
  /** The host configs of any number of hosts. */
  readonly hostConfigs: readonly SourceFile[]
  readonly keepPaths: readonly string[]
}

/** The subject of a release gate; without an artifact, only the operator's files are checked. */
export interface GateRequest {
  readonly files: GateFiles
  readonly artifact: GateArtifact | undefined
}

interface GateTools extends Pick<Tools, 'log' | 'now' | 'runner' | 'signal'> {
  readonly wire: Wire
  /** Called with the path of a folder before the folder exists, and with undefined once it is gone. */
  readonly onFolder: (path: string | undefined) => void
}

/** The facts that a gate learned about an artifact, even if it did not verify the artifact. */
interface GateFacts {
  version?: string | undefined
  versionSource?: DeployedVersion['source'] | undefined
  sha256?: string
  size?: number
  /** From an unsigned header in the hub's response. */
  repo?: string | undefined
  /** The number of extracted files. */
  files?: number
  /** The total size of the extracted files. */
  bytes?: number
  /** The number of steps in the plan. */
  steps?: number
}

export interface GateResult {
  readonly facts: Readonly<GateFacts>
  /** Undefined if every requested check passes. */
  readonly error: DeployError | undefined
}

/**
 * Checks a release as a deployment would, with the same code and the same error codes, but without a host. Checks the
 * plan and each host config, the signature, the pin, the archive, `plugin.yaml`, the version, and the files that the
 * plan takes from the artifact. Only an extraction shows whether each file has its declared size and checksum.
 * Therefore, extracts the artifact into a private folder below the runner's temporary folder, and removes the folder at
 * the end. Never throws for a failed check: the result contains the error.
 */
export async function checkRelease(request: GateRequest, tools: GateTools): Promise<GateResult> {
  const facts: GateFacts = {}
  try {
    const plan = await checkFiles(request.files, tools)
    if (plan !== undefined) facts.steps = plan.steps.length
    if (request.artifact !== undefined) {
      const gate = { request: request.artifact, files: request.files, plan, tools, facts }
      await checkArtifact(gate)
    }
    return { facts, error: undefined }
  } catch (error) {
    return { facts, error: causeOf(tools, error) }
  }
}

/** A gate that checks an artifact. */
interface Gate {
  readonly request: GateArtifact
  readonly files: GateFiles
  readonly plan: ReadyArtifactPlan | undefined
  readonly tools: GateTools
  readonly facts: GateFacts
}

/**
 * Makes all checks of the operator's files. Throws one error with the problems of all files. Returns the plan, or the
 * default plan of the first host.
 */
async function checkFiles(files: GateFiles, { log, signal }: GateTools): Promise<ReadyArtifactPlan | undefined> {
  const slice = new TimeSlice(signal)
  const checked: Collected<ReadyArtifactPlan | undefined>[] = []
  for (const check of checksOf(files)) checked.push(await slice.run(collectProblemsSlowly(check)))
  refuseProblems(checked.flatMap(({ problems }) => problems))
  const plans = checked.flatMap(({ value }) => value ?? [])
  announcePlans(plans, log)
  return plans[0]
}

/** Returns a check for each host config, alone and against the plan, as the deployment to that host makes it. */
function checksOf({ slug, kind, plan, hostConfigs }: GateFiles): Generator<void, ReadyArtifactPlan | undefined>[] {
  if (slug === undefined) return hostConfigs.map(checkAlone)
  if (hostConfigs.length > 0) return hostConfigs.map(hostConfig => readyArtifactPlan({ slug, kind, plan, hostConfig }))
  return plan === undefined ? [] : [readyArtifactPlan({ slug, kind, plan, hostConfig: undefined })]
}

function* checkAlone({ text, path }: SourceFile): Generator<void, undefined> {
  yield* parseHostConfigSlowly(text, path)
}

/** Throws if there are problems. A problem of the plan itself is found once for each host, but listed once. */
function refuseProblems(problems: readonly SourceProblem[]): void {
  if (problems.length === 0) return
  const distinct = [...new Map(problems.map(problem => [JSON.stringify(problem), problem])).values()]
  const isOfPlan = distinct.some(({ code }) => code === undefined)
  throw isOfPlan ? new PlanError(distinct) : new HostConfigError(distinct)
}

/** Logs the plan, or each of the hosts' default plans once. */
function announcePlans(plans: readonly ReadyArtifactPlan[], log: Log): void {
  const announced = new Set<string | undefined>()
  for (const plan of plans) {
    const text = plan.defaultPlan?.text
    if (announced.has(text)) continue
    announced.add(text)
    announceDefaultPlan(plan, log)
    log.info(`The plan is valid: ${describeSequence(plan.steps)}`)
  }
}

async function checkArtifact(gate: Gate): Promise<void> {
  const { tools, facts } = gate
  const file = openPrivateFileSync(tools.runner.temporaryFolder)
  try {
    await enter(tools, 'fetching')
    const found = await obtain(gate, file.fd)
    const { artifact, repo } = found.served
    Object.assign(facts, { sha256: artifact.sha256, size: artifact.size, repo })
    tools.log.did(bytesInWords(artifact.size))
    await enter(tools, 'verifying_signature')
    const verified = verifyServed(gate, found.served)
    await inPrivateFolder(tools, async folder => await checkContent(gate, { ...found, verified }, folder))
  } finally {
    file.close()
  }
}

async function obtain({ request, tools, facts }: Gate, fd: number): Promise<FetchedVersion> {
  const { source, version } = request
  const asked = version === 'latest' ? undefined : version
  if (asked !== undefined) note(facts, { version: asked, source: 'requested' })
  if ('path' in source) {
    return { served: await readLocalArtifact({ source, request, tools, fd }), asked, listed: undefined }
  }
  const client = createMarketplaceClient(tools.wire, { ...source, kind: request.kind })
  const found = await fetchRequested({ request, client, tools, fd })
  const { headerVersion } = found.served
  if (asked === undefined && headerVersion !== undefined) note(facts, { version: headerVersion, source: 'header' })
  return found
}

async function checkContent(gate: Gate, found: VerifiedVersion, folder: string): Promise<void> {
  const { tools, facts, files, plan } = gate
  await enter(tools, 'extracting')
  const unpacked = await unpackArtifact(gate, found.verified, folder)
  noticeScripts(tools.log, unpacked.tree.scripts ?? [])
  Object.assign(facts, { files: unpacked.tree.files.length, bytes: unpacked.tree.bytes })
  noteVersion(gate, found, unpacked.pluginYaml)
  await checkSignable(unpacked)
  await enter(tools, 'loading_plan')
  const { envFile, needs } = unpacked.pluginYaml ?? {}
  for (const reason of needs === undefined ? [] : otherFramework(needs, plan?.hostConfig?.frameworkVersion))
    tools.log.warning(`The host framework may not load this plugin: ${reason}.`)
  const keepPaths = envFile === undefined ? files.keepPaths : [...files.keepPaths, envFile]
  if (plan !== undefined) bindToFiles(plan, pathTest(unpacked.tree.files), keepPaths)
}

/**
 * Checks and notes the version of the artifact. Does nothing for a local file if neither the request nor the artifact's
 * `plugin.yaml` names a version.
 */
function noteVersion({ request, tools, facts }: Gate, found: FetchedVersion, pluginYaml: PluginYaml | undefined): void {
  if ('path' in request.source && found.asked === undefined && pluginYaml?.version === undefined) return
  const decided = decideVersion(found, pluginYaml)
  // Deployments name the version that the gate outputs, and a hub may know that version only with a leading v.
  const known = claimedVersion(found) ?? found.listed
  const isKnown = known !== undefined && isSameVersion(known, decided.version)
  note(facts, isKnown ? { ...decided, version: known } : decided)
  noticeOtherVersion(tools.log, found, decided)
}

/** Checks that a host could sign the plugin: a host refuses an entry point outside the plugin. */
async function checkSignable({ staged, pluginYaml }: UnpackedArtifact): Promise<void> {
  if (pluginYaml !== undefined && needsPluginSig(pluginYaml)) await signedFiles(staged, pluginYaml)
}

function note(facts: GateFacts, { version, source }: DeployedVersion): void {
  facts.version = version
  facts.versionSource = source
}

/**
 * Lets signals that have arrived take effect. Throws the abort reason if one of them cancels the run; otherwise logs
 * the name of a deployment's state.
 */
async function enter({ log, signal }: GateTools, state: string): Promise<void> {
  await hearSignals()
  signal.throwIfAborted()
  log.group(state)
}

async function inPrivateFolder(tools: GateTools, act: (folder: string) => Promise<void>): Promise<void> {
  const parent = tools.runner.temporaryFolder
  const folder = namePrivateFolder(parent)
  tools.onFolder(folder)
  try {
    makePrivateFolderSync(folder)
    await act(folder)
  } finally {
    await removeFolder(tools, folder)
  }
}

/** Removes the private folder. After a cancel, and if this fails, the post step removes the rest. */
async function removeFolder({ runner, log, signal, onFolder }: GateTools, folder: string): Promise<void> {
  try {
    await removePrivateFolder(runner.temporaryFolder, folder, signal)
    onFolder(undefined)
  } catch (error) {
    if (signal.aborted) return
    log.warning(`${asSentence(toHostError(error, `removing ${folder}`).message)} The post step will try again.`)
  }
}

function causeOf({ signal, runner }: GateTools, thrown: unknown): DeployError {
  if (signal.aborted) return toDeployError(signal.reason)
  const isOfSystem = isSystemError(thrown)
  return isOfSystem ? toHostError(thrown, `checking the artifact in ${runner.temporaryFolder}`) : toDeployError(thrown)
}

const READ_BYTES = 256 * 1024

/** A file in the workspace, and its signature as the publisher gives it. */
interface LocalSource {
  readonly workspace: string
  /** Relative to the workspace, or an absolute path below it. */
  readonly path: string
  /** `hmac_sha256:<64 hex digits>` */
  readonly signature: string
}

interface LocalReading {
  readonly source: LocalSource
  readonly request: { readonly signingSecret: string; readonly maxArtifactBytes: number }
  readonly tools: Pick<Tools, 'log' | 'now' | 'runner' | 'signal'>
  /** An open, empty file that belongs to the caller. */
  readonly fd: number
}

/**
 * Copies a file of the workspace into a file that no other process can reach. Exactly the verified bytes are then used,
 * even if the original changes afterwards. Throws SignatureError `invalid_signature_format`, ConfigError
 * `invalid_input` (anything but a regular file in the workspace, or a file that changes while it is read), ArchiveError
 * `archive_too_large`, DeploymentError `disk_full` or `host_not_writable`, and the signal's reason once the signal is
 * aborted.
 */
export async function readLocalArtifact(reading: LocalReading): Promise<ServedArtifact> {
  const { source } = reading
  parseSignatureHeader(source.signature, 'input')
  const file = openSource(source)
  try {
    const before = fstatSync(file)
    refuseTooLarge(reading, before.size)
    const copied = await copy(reading, file, before.size)
    if (isOther(before, fstatSync(file))) throw unusable(source, 'it was changed while it was read')
    return { ...copied, signatureHeader: source.signature, headerVersion: undefined, repo: undefined }
  } finally {
    close(file, () => {})
  }
}

function openSource(source: LocalSource): number {
  try {
    return openBelowSync(source.workspace, source.path)
  } catch (error) {
    if (error instanceof NotReadable) throw unusable(source, error.message)
    throw error
  }
}

async function copy(
  { request, tools, fd }: LocalReading,
  file: number,
  total: number,
): Promise<Pick<ServedArtifact, 'artifact' | 'hmac'>> {
  const sha256 = createHash('sha256')
  const hmac = createHmac('sha256', request.signingSecret)
  const onProgress = watchDownload(tools)
  let size = 0
  for await (const piece of piecesOf(file, total, tools.signal)) {
    sha256.update(piece)
    hmac.update(piece)
    writeChunkSync(fd, piece, size)
    size += piece.length
    onProgress(size, total)
  }
  const signedFor = { apiKey: undefined, signingSecret: 'signing-secret', stray: strayEnds(request.signingSecret) }
  return { artifact: { fd, size, sha256: sha256.digest('hex'), signedFor }, hmac: hmac.digest() }
}

/**
 * Reads at most one byte more than the file had at first: an extra byte means that the file has grown. Each piece is
 * valid until the next one is read.
 */
async function* piecesOf(file: number, total: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  const buffer = Buffer.allocUnsafeSlow(READ_BYTES)
  for (let position = 0; position <= total; ) {
    signal.throwIfAborted()
    const { bytesRead } = await readAt(file, buffer, 0, Math.min(READ_BYTES, total + 1 - position), position)
    if (bytesRead === 0) return
    position += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}

function isOther(before: Stats, after: Stats): boolean {
  return before.size !== after.size || before.mtimeMs !== after.mtimeMs || before.ctimeMs !== after.ctimeMs
}

function refuseTooLarge({ source, request: { maxArtifactBytes } }: LocalReading, bytes: number): void {
  if (bytes <= maxArtifactBytes) return
  throw new ArchiveError(
    'archive_too_large',
    `The artifact ${cleanForeignText(source.path)} has ${bytes} bytes, more than the ${maxArtifactBytes} that max-artifact-bytes allows. Raise max-artifact-bytes if the artifact is meant to be that large.`,
  )
}

function unusable({ path }: LocalSource, found: string): ConfigError {
  return new ConfigError(
    'invalid_input',
    `artifact-path must name a regular file in the workspace, but ${cleanForeignText(path)} cannot be used: ${found}.`,
  )
}
