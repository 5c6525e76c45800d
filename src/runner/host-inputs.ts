import { hostname } from 'node:os'
import { z } from 'zod/mini'
import {
  DEFAULT_MAX_ARTIFACT_BYTES,
  DEFAULT_MAX_ENTRIES,
  DEFAULT_MAX_EXTRACTED_BYTES,
  hostIdSchema,
  OPERATOR_YAML_LIMITS,
  sha256Schema,
} from '../core/identifiers.ts'
import type { Log } from '../core/log.ts'
import { faultOfAuthorities } from '../net/policy.ts'
import type { WireOptions } from '../net/wire.ts'
import {
  booleanSchema,
  type InputReader,
  integerSchema,
  keepPathsSchema,
  minutesSchema,
  projectRootSchema,
} from './inputs.ts'

export const DEFAULT_KEEP_PATHS = ['.env', 'data']
const TERABYTE = 1024 ** 4
/** In milliseconds. */
export const lockTimeoutSchema = z.pipe(
  integerSchema(0, 86_400),
  z.transform((seconds: number) => seconds * 1000),
)
/** In milliseconds. */
export const downloadTimeoutSchema = z.pipe(
  minutesSchema,
  z.transform((minutes: number) => minutes * 60_000),
)

/** Reads the inputs that all installing actions have: the host, its rules and the limits. */
export function readHostInputs(read: InputReader) {
  return {
    pluginSecretKey: read.optionalSecret('plugin-secret-key'),
    ...readHost(read),
    artifactSha256: read.optional('artifact-sha256', sha256Schema),
    settings: read.settings('settings'),
    allowTakeover: read.withDefault('allow-takeover', booleanSchema, false),
    allowDowngrade: read.withDefault('allow-downgrade', booleanSchema, false),
    redeploy: read.withDefault('redeploy', booleanSchema, false),
    downloadTimeoutMs: read.withDefault('timeout-minutes', downloadTimeoutSchema, 900_000),
    ...readLimits(read),
  }
}

/** Reads the inputs that all actions that change a host have: its root, its id and its rules. */
export function readHost(read: InputReader) {
  return {
    projectRoot: read.required('project-root', projectRootSchema),
    hostId: read.withDefault('host-id', hostIdSchema, hostname()),
    hostConfig: read.hostFile('host-config', OPERATOR_YAML_LIMITS.bytes),
    keepPaths: read.withDefault('keep-paths', keepPathsSchema, DEFAULT_KEEP_PATHS),
    allowSharedRoot: read.withDefault('allow-shared-root', booleanSchema, false),
    keepSnapshots: read.withDefault('keep-snapshots', integerSchema(0, 1000), 3),
    keepReports: read.withDefault('keep-reports', integerSchema(1, 100_000), 200),
    lockTimeoutMs: read.withDefault('lock-timeout-seconds', lockTimeoutSchema, 900_000),
  }
}

/** Reads the limits for an artifact. */
export function readLimits(read: InputReader) {
  const bytes = integerSchema(1, TERABYTE)
  const maxExtractedBytes = read.withDefault('max-extracted-bytes', bytes, DEFAULT_MAX_EXTRACTED_BYTES)
  const maxEntries = read.withDefault('max-entries', integerSchema(1, 10_000_000), DEFAULT_MAX_ENTRIES)
  const isUsable = maxExtractedBytes !== undefined && maxEntries !== undefined
  return {
    maxArtifactBytes: read.withDefault('max-artifact-bytes', bytes, DEFAULT_MAX_ARTIFACT_BYTES),
    extraction: isUsable ? { maxExtractedBytes, maxEntries } : undefined,
  }
}

const MAX_CA_BYTES = 1024 * 1024
const USER_AGENT = 'hub-deploy'

/** The settings that all requests to a hub share. */
export interface Connection {
  allowHttp: boolean
  /** PEM text. */
  ca: string | undefined
}

export function readConnection(read: InputReader): Connection {
  return {
    allowHttp: read.withDefault('allow-http', booleanSchema, false) ?? false,
    ca: readAuthorities(read),
  }
}

export function wireOptions({ allowHttp, ca }: Connection, log: Log): WireOptions {
  return {
    allowHttp,
    userAgent: USER_AGENT,
    log: line => log.info(line),
    ...(ca === undefined ? {} : { ca }),
  }
}

function readAuthorities(read: InputReader): string | undefined {
  const file = read.file('ca-file', MAX_CA_BYTES)
  if (file === undefined) return undefined
  if (Buffer.byteLength(file.text) > MAX_CA_BYTES) {
    read.refuse('ca-file', `names ${file.path}, which is larger than ${MAX_CA_BYTES} bytes`)
    return undefined
  }
  const fault = faultOfAuthorities(file.text)
  if (fault === undefined) return file.text
  read.refuse('ca-file', `names ${file.path}, which ${fault}`)
  return undefined
}
