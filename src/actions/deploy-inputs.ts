import { closeSync, openSync, readSync } from 'node:fs'
import { hostname } from 'node:os'
import { resolve } from 'node:path'
import { z } from 'zod'
import { errnoOf } from '../core/errors.ts'
import { kindSchema, sha256Schema, slugSchema, versionSchema } from '../core/identifiers.ts'
import {
  DEFAULT_MAX_ARTIFACT_BYTES,
  DEFAULT_MAX_ENTRIES,
  DEFAULT_MAX_EXTRACTED_BYTES,
  MAX_PLAN_BYTES,
} from '../core/limits.ts'
import type { DeployRequest, IncompleteRequest, SourceFile } from '../marketplace/deploy-request.ts'
import { readTrust } from '../net/trust.ts'
import { createInputReader, type InputProblem, type InputReader } from './input-reader.ts'
import {
  apiKeySchema,
  baseUrlSchema,
  booleanSchema,
  hostIdSchema,
  integerSchema,
  keepPathsSchema,
  minutesSchema,
  projectRootSchema,
} from './input-schemas.ts'

const DEFAULT_KEEP_PATHS = ['.env', 'data']
const MAX_CA_BYTES = 1024 * 1024
const TERABYTE = 1024 ** 4

/** How to reach the hub, beside the request itself. */
export interface Connection {
  allowHttp: boolean
  /** PEM text. */
  ca: string | undefined
}

export interface DeployInputs {
  request: IncompleteRequest
  connection: Connection
  secrets: readonly string[]
  problems: readonly InputProblem[]
}

/** Reads every input of the deploy action; what is wrong is collected, not thrown. Defaults stand in only for what was left out. */
export function readDeployInputs(workspace: string): DeployInputs {
  const read = createInputReader()
  const request = {
    apiKey: read.requiredSecret('api-key', apiKeySchema),
    signingSecret: read.requiredSecret('signing-secret'),
    pluginSecretKey: read.optionalSecret('plugin-secret-key'),
    bases: readBases(read),
    slug: read.required('slug', slugSchema),
    kind: read.withDefault('kind', kindFromText, 'plugin'),
    version: read.withDefault('version', versionSchema, 'latest'),
    plan: readSource(read, workspace, read.required('install-plan', z.string()), 'install-plan', MAX_PLAN_BYTES),
    projectRoot: read.required('project-root', projectRootSchema),
    hostId: read.withDefault('host-id', hostIdSchema, hostname()),
    hostConfig: readSource(read, workspace, read.optional('host-config', z.string()), 'host-config', MAX_PLAN_BYTES),
    artifactSha256: read.optional('artifact-sha256', sha256Schema),
    keepPaths: read.withDefault('keep-paths', keepPathsSchema, DEFAULT_KEEP_PATHS),
    ...readChoices(read),
    ...readLimits(read),
  }
  const connection = {
    allowHttp: read.withDefault('allow-http', booleanSchema, false) ?? false,
    ca: readAuthorities(read, workspace),
  }
  return { request, connection, secrets: read.secrets, problems: read.problems }
}

const kindFromText = z.string().pipe(kindSchema)
/** Milliseconds. */
const lockTimeoutSchema = integerSchema(0, 86_400).transform(seconds => seconds * 1000)
/** Milliseconds. */
const downloadTimeoutSchema = minutesSchema.transform(minutes => minutes * 60_000)

function readBases(read: InputReader): DeployRequest['bases'] | undefined {
  const hub = read.required('hub-url', baseUrlSchema)
  const services = read.withDefault<string | undefined>('services-url', baseUrlSchema, hub)
  const deployments = read.withDefault<string | undefined>('deployments-url', baseUrlSchema, hub)
  return hub && services && deployments ? { hub, services, deployments } : undefined
}

function readChoices(read: InputReader) {
  return {
    allowDowngrade: read.withDefault('allow-downgrade', booleanSchema, false),
    dryRun: read.withDefault('dry-run', booleanSchema, false),
    keepSnapshots: read.withDefault('keep-snapshots', integerSchema(0, 1000), 3),
    lockTimeoutMs: read.withDefault('lock-timeout-seconds', lockTimeoutSchema, 300_000),
    downloadTimeoutMs: read.withDefault('timeout-minutes', downloadTimeoutSchema, 900_000),
  }
}

function readLimits(read: InputReader) {
  const bytes = integerSchema(1, TERABYTE)
  const maxExtractedBytes = read.withDefault('max-extracted-bytes', bytes, DEFAULT_MAX_EXTRACTED_BYTES)
  const maxEntries = read.withDefault('max-entries', integerSchema(1, 10_000_000), DEFAULT_MAX_ENTRIES)
  const isUsable = maxExtractedBytes !== undefined && maxEntries !== undefined
  return {
    maxArtifactBytes: read.withDefault('max-artifact-bytes', bytes, DEFAULT_MAX_ARTIFACT_BYTES),
    extraction: isUsable ? { maxExtractedBytes, maxEntries } : undefined,
  }
}

function readAuthorities(read: InputReader, workspace: string): string | undefined {
  const path = read.optional('ca-file', z.string())
  const ca = readSource(read, workspace, path, 'ca-file', MAX_CA_BYTES)?.text
  if (ca !== undefined && Buffer.byteLength(ca) > MAX_CA_BYTES) {
    read.refuse('ca-file', `names ${path}, which is larger than ${MAX_CA_BYTES} bytes`)
    return undefined
  }
  try {
    readTrust(ca)
    return ca
  } catch {
    read.refuse('ca-file', `names ${path}, which holds no certificate in PEM form`)
    return undefined
  }
}

/**
 * A file of the operator's; undefined, and a problem, when it cannot be read. One that is too large, or no UTF-8, is cut
 * one byte beyond `maxBytes`, or gets U+FFFD: who parses it complains of both, at its place.
 */
function readSource(
  read: InputReader,
  workspace: string,
  path: string | undefined,
  input: string,
  maxBytes: number,
): SourceFile | undefined {
  if (path === undefined) return undefined
  const found = resolve(workspace, path)
  try {
    return { path, text: readStart(found, maxBytes + 1).toString('utf8') }
  } catch (error) {
    const why = errnoOf(error) ?? 'unknown error'
    read.refuse(input, `names ${path}, which cannot be read at ${found} (${why}; was the repository checked out?)`)
    return undefined
  }
}

/** The first bytes of a file, at most so many. */
function readStart(path: string, maxBytes: number): Buffer {
  const fd = openSync(path, 'r')
  try {
    const bytes = Buffer.alloc(maxBytes)
    let size = 0
    for (let count = -1; count !== 0 && size < maxBytes; size += count)
      count = readSync(fd, bytes, size, maxBytes - size, null)
    return bytes.subarray(0, size)
  } finally {
    closeSync(fd)
  }
}
