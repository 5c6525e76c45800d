import { readFileSync, statSync } from 'node:fs'
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
  secrets: (string | undefined)[]
  problems: readonly InputProblem[]
}

/** Reads every input of the deploy action; what is wrong is collected, not thrown. */
export function readDeployInputs(workspace: string): DeployInputs {
  const read = createInputReader()
  const secrets = {
    apiKey: read.requiredSecret('api-key'),
    signingSecret: read.requiredSecret('signing-secret'),
    pluginSecretKey: read.optionalSecret('plugin-secret-key'),
  }
  const request = {
    ...secrets,
    bases: readBases(read),
    slug: read.required('slug', slugSchema),
    kind: read.optional('kind', kindFromText) ?? ('plugin' as const),
    version: read.optional('version', versionSchema) ?? 'latest',
    plan: readSource(read, workspace, read.required('install-plan', z.string()), 'install-plan', MAX_PLAN_BYTES),
    projectRoot: read.required('project-root', projectRootSchema),
    hostId: read.optional('host-id', hostIdSchema) ?? hostname(),
    hostConfig: readSource(read, workspace, read.optional('host-config', z.string()), 'host-config', MAX_PLAN_BYTES),
    artifactSha256: read.optional('artifact-sha256', sha256Schema),
    keepPaths: read.optional('keep-paths', keepPathsSchema) ?? DEFAULT_KEEP_PATHS,
    ...readChoices(read),
    ...readLimits(read),
  }
  const connection = {
    allowHttp: read.optional('allow-http', booleanSchema) ?? false,
    ca: readAuthorities(read, workspace),
  }
  return { request, connection, secrets: Object.values(secrets), problems: read.problems }
}

const utf8 = new TextDecoder('utf-8', { fatal: true })
const kindFromText = z.string().pipe(kindSchema)

function readBases(read: InputReader): DeployRequest['bases'] | undefined {
  const hub = read.required('hub-url', baseUrlSchema)
  const services = read.optional('services-url', baseUrlSchema)
  const deployments = read.optional('deployments-url', baseUrlSchema)
  return hub === undefined ? undefined : { hub, services: services ?? hub, deployments: deployments ?? hub }
}

function readChoices(read: InputReader) {
  return {
    allowDowngrade: read.optional('allow-downgrade', booleanSchema) ?? false,
    dryRun: read.optional('dry-run', booleanSchema) ?? false,
    keepSnapshots: read.optional('keep-snapshots', integerSchema(0, 1000)) ?? 3,
    lockTimeoutMs: (read.optional('lock-timeout-seconds', integerSchema(0, 86_400)) ?? 300) * 1000,
    downloadTimeoutMs: (read.optional('timeout-minutes', minutesSchema) ?? 15) * 60_000,
  }
}

function readLimits(read: InputReader) {
  return {
    maxArtifactBytes: read.optional('max-artifact-bytes', integerSchema(1, TERABYTE)) ?? DEFAULT_MAX_ARTIFACT_BYTES,
    extraction: {
      maxExtractedBytes:
        read.optional('max-extracted-bytes', integerSchema(1, TERABYTE)) ?? DEFAULT_MAX_EXTRACTED_BYTES,
      maxEntries: read.optional('max-entries', integerSchema(1, 10_000_000)) ?? DEFAULT_MAX_ENTRIES,
    },
  }
}

function readAuthorities(read: InputReader, workspace: string): string | undefined {
  const path = read.optional('ca-file', z.string())
  const ca = readSource(read, workspace, path, 'ca-file', MAX_CA_BYTES)?.text
  try {
    readTrust(ca)
    return ca
  } catch {
    read.refuse('ca-file', `names ${path}, which holds no certificate in PEM form`)
    return undefined
  }
}

/** A file of the operator's; undefined, and a problem, when it cannot be read. */
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
    if (statSync(found).size > maxBytes) read.refuse(input, `names ${path}, which is larger than ${maxBytes} bytes`)
    else return { path, text: utf8.decode(readFileSync(found)) }
  } catch (error) {
    read.refuse(
      input,
      `names ${path}, which cannot be read at ${found} (${errnoOf(error) ?? 'not UTF-8 text'}; was the repository checked out?)`,
    )
  }
  return undefined
}
