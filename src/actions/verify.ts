import { z } from 'zod/mini'
import { type DeployError, DeploymentError, toDeployError } from '../core/errors.ts'
import {
  DEFAULT_MAX_ARTIFACT_BYTES,
  DEFAULT_MAX_ENTRIES,
  DEFAULT_MAX_EXTRACTED_BYTES,
  kindSchema,
  OPERATOR_YAML_LIMITS,
  sha256Schema,
  slugSchema,
  versionSchema,
  writtenPluginsDirectorySchema,
} from '../core/identifiers.ts'
import { listNames } from '../core/text.ts'
import { toHostError } from '../install/files/errors.ts'
import { removePrivateFolder } from '../install/files/remove-tree.ts'
import type { Incomplete } from '../install/run/contract.ts'
import {
  checkRelease,
  type GateArtifact,
  type GateFiles,
  type GateRequest,
  type GateResult,
} from '../marketplace/gate.ts'
import { parseRequestUrl } from '../net/policy.ts'
import { createWire } from '../net/wire.ts'
import { readRunnerFacts, readState, readWorkspace } from '../runner/files.ts'
import {
  type Connection,
  DEFAULT_KEEP_PATHS,
  downloadTimeoutSchema,
  readConnection,
  readLimits,
  wireOptions,
} from '../runner/host-inputs.ts'
import {
  apiKeySchema,
  baseUrlSchema,
  type GivenInputs,
  InputReader,
  inputError,
  keepPathsSchema,
} from '../runner/inputs.ts'
import { failStep, type ReadingStepEnd, runReadingStep, type StepTools } from '../runner/step.ts'
import { buildVerifySummary, type CheckedSubject, describeGate } from '../runner/summaries/verify.ts'

/** The name of the state in which the main step saves the path of its private folder, for the post step. */
const FOLDER_STATE = 'folder'
const KILLED = new DeploymentError('interrupted', 'The run was killed.')

/** The source of the artifact; `none` is a check of the operator's files alone. */
type Mode = 'hub' | 'file' | 'none'

export interface VerifyInputs extends GivenInputs {
  readonly mode: Mode
  /** Complete if there are no problems. */
  readonly request: GateRequest
  readonly connection: Connection
}

/** The verify action: reads inputs, checks a release, sets outputs. Fails the step unless everything passes. */
export async function verify(): Promise<void> {
  await runReadingStep(() => readVerifyInputs(readWorkspace()), act)
}

/**
 * The verify action's post step: removes a private folder that the main step left behind. Fails if the folder cannot be
 * removed.
 */
export async function verifyPost(): Promise<void> {
  const folder = readState(FOLDER_STATE)
  if (folder === '') return
  try {
    await removePrivateFolder(readRunnerFacts(process.env).temporaryFolder, folder)
  } catch (error) {
    failStep(undefined, toHostError(error, `removing ${folder}`))
  }
}

/**
 * Reads every input of the verify action and collects all problems. Only an input that was left out gets its default.
 */
export function readVerifyInputs(workspace: string): VerifyInputs {
  const read = new InputReader('verify', workspace, { foreign: true })
  const mode = modeOf(read)
  if (mode === 'hub') requireHub(read)
  // A gate reaches no host, but refuses what every host would refuse.
  read.optional('plugins-directory', writtenPluginsDirectorySchema)
  const files = readFiles(read, mode)
  const artifact = mode === 'none' ? undefined : readArtifact(read, mode, { workspace, files })
  return {
    mode,
    // If there are no problems, every required input was parsed.
    request: { files: files as GateFiles, artifact: artifact as GateArtifact | undefined },
    connection: readConnection(read),
    ...read.given(),
  }
}

/** Returns every output of verify/action.yml but `error-code`. An unknown value is empty. */
export function buildVerifyOutputs({ mode }: CheckedSubject, { facts, error }: GateResult): Record<string, string> {
  return {
    verified: mode === 'none' ? '' : String(error === undefined),
    version: facts.version ?? '',
    'artifact-sha256': facts.sha256 ?? '',
    'artifact-size': facts.size === undefined ? '' : String(facts.size),
    repo: facts.repo ?? '',
  }
}

/**
 * Each of these inputs asks for an artifact to be checked. If other inputs that the check needs are missing, the gate
 * must fail rather than skip a check.
 */
const ARTIFACT_INPUTS = ['hub-url', 'services-url', 'api-key', 'signing-secret', 'artifact-sha256']
/**
 * These inputs also ask for that check if they differ from their defaults. The runner passes the default of an input
 * that is left out.
 */
const ARTIFACT_SETTINGS = {
  version: 'latest',
  'timeout-minutes': '15',
  'max-artifact-bytes': String(DEFAULT_MAX_ARTIFACT_BYTES),
  'max-extracted-bytes': String(DEFAULT_MAX_EXTRACTED_BYTES),
  'max-entries': String(DEFAULT_MAX_ENTRIES),
  'ca-file': '',
  'allow-http': 'false',
}
const FILE_INPUTS = ['artifact-path', 'signature']
const HUB_INPUTS = ['hub-url', 'services-url', 'api-key']
const HUB_SECRETS = ['api-key', 'signing-secret']
const HUB_NEEDS = ['hub-url', 'slug', ...HUB_SECRETS]

function modeOf(read: InputReader): Mode {
  if (FILE_INPUTS.some(name => read.isGiven(name))) return 'file'
  if (artifactInputsGiven(read).length > 0) return 'hub'
  return isGivenFile(read) ? 'none' : 'hub'
}

function isGivenFile(read: InputReader): boolean {
  return read.isGiven('install-plan') || read.isGiven('host-config')
}

function artifactInputsGiven(read: InputReader): string[] {
  const chosen = Object.entries(ARTIFACT_SETTINGS).filter(([name, fallback]) => read.isChosen(name, fallback))
  return [...ARTIFACT_INPUTS.filter(name => read.isGiven(name)), ...chosen.map(([name]) => name)]
}

function requireHub(read: InputReader): void {
  const missing = HUB_NEEDS.filter(name => !read.isGiven(name))
  if (missing.length === 0) return
  const needs = `A check of what a hub serves needs ${listNames(HUB_NEEDS)}, but ${listNames(missing)} ${missing.length === 1 ? 'has' : 'have'} no value`
  read.require(`${needs}${remedyFor(missing, artifactInputsGiven(read), isGivenFile(read))}`)
}

function remedyFor(missing: readonly string[], given: readonly string[], hasFiles: boolean): string {
  if (given.length === 0)
    return '; a check of a plan needs slug and install-plan; a check of a file needs artifact-path, signature and signing-secret'
  const secrets = missing.some(name => HUB_SECRETS.includes(name))
    ? ' (a secret is empty if it is not defined, and in a pull request from a fork)'
    : ''
  return hasFiles ? `${secrets}; to check only install-plan and host-config, leave out ${listNames(given)}` : secrets
}

function readFiles(read: InputReader, mode: Mode): Incomplete<GateFiles> {
  const needsSlug = mode !== 'hub' && read.isGiven('install-plan')
  return {
    kind: read.withDefault('kind', z.pipe(z.string(), kindSchema), 'plugin'),
    slug: needsSlug ? read.required('slug', slugSchema) : read.optional('slug', slugSchema),
    plan: read.hostFile('install-plan', OPERATOR_YAML_LIMITS.bytes),
    hostConfigs: read.hostFiles('host-config', OPERATOR_YAML_LIMITS.bytes),
    keepPaths: read.withDefault('keep-paths', keepPathsSchema, DEFAULT_KEEP_PATHS),
  }
}

interface Surroundings {
  readonly workspace: string
  readonly files: Incomplete<GateFiles>
}

function readArtifact(
  read: InputReader,
  mode: 'hub' | 'file',
  { workspace, files }: Surroundings,
): Incomplete<Omit<GateArtifact, 'source'>> & { source: Incomplete<GateArtifact['source']> } {
  return {
    kind: files.kind,
    source: mode === 'hub' ? readHub(read, files.slug) : { workspace, ...readLocalFile(read) },
    signingSecret: mode === 'hub' ? read.optionalSecret('signing-secret') : read.requiredSecret('signing-secret'),
    version: read.withDefault('version', versionSchema, 'latest'),
    artifactSha256: read.optional('artifact-sha256', sha256Schema),
    downloadTimeoutMs: read.withDefault('timeout-minutes', downloadTimeoutSchema, 900_000),
    ...readLimits(read),
  }
}

/** `requireHub` has already listed the missing inputs. */
function readHub(read: InputReader, slug: string | undefined) {
  const hub = read.optional('hub-url', baseUrlSchema)
  const services = read.withDefault<string | undefined>('services-url', baseUrlSchema, hub)
  const bases = hub && services ? { hub, services, deployments: hub } : undefined
  return { bases, slug, apiKey: read.optionalSecret('api-key', apiKeySchema) }
}

function readLocalFile(read: InputReader) {
  for (const name of HUB_INPUTS.filter(name => read.isGiven(name)))
    read.refuse(
      name,
      'is set together with artifact-path or signature: check either what a hub serves or a file, not both',
    )
  return { path: read.required('artifact-path', z.string()), signature: read.required('signature', z.string()) }
}

async function act(inputs: VerifyInputs, tools: StepTools): Promise<ReadingStepEnd> {
  const subject = checkedSubjectOf(inputs)
  tools.setOutputs({ ...buildVerifyOutputs(subject, { facts: {}, error: KILLED }), 'error-code': KILLED.code })
  const result = await runGate(inputs, tools)
  const { error } = result
  const summary = buildVerifySummary(subject, result, tools.notes)
  return {
    outputs: buildVerifyOutputs(subject, result),
    summary,
    sentence: describeGate(subject, result).sentence,
    error,
  }
}

async function runGate(inputs: VerifyInputs, tools: StepTools): Promise<GateResult> {
  const error = inputRefusal(inputs)
  if (error !== undefined) return { facts: {}, error }
  const { log, signal, saveState } = tools
  const onFolder = (path: string | undefined): void => saveState(FOLDER_STATE, path ?? '')
  const wire = createWire({ ...wireOptions(inputs.connection, log), signal })
  return await checkRelease(inputs.request, { ...tools, wire, onFolder })
}

/** The error for inputs that cannot be used. An insecure base is refused before anything is sent. */
function inputRefusal({ problems, request, connection }: VerifyInputs): DeployError | undefined {
  if (problems.length > 0) return inputError(problems)
  const source = request.artifact?.source
  if (source === undefined || 'path' in source) return undefined
  try {
    for (const base of Object.values(source.bases)) parseRequestUrl(base, connection)
    return undefined
  } catch (error) {
    return toDeployError(error)
  }
}

function checkedSubjectOf({ mode, request: { files, artifact } }: VerifyInputs): CheckedSubject {
  const source = artifact?.source
  const isFile = source !== undefined && 'path' in source
  return {
    mode,
    kind: files.kind,
    name: files.slug ?? (isFile ? source.path : undefined),
    version: artifact?.version,
    from: isFile ? source.path : source?.bases?.hub,
    pinned: artifact?.artifactSha256,
    plan: files.plan?.path,
    hostConfigs: files.hostConfigs.map(({ path }) => path),
  }
}
