import { z } from 'zod/mini'
import { kindSchema, slugSchema, versionSchema } from '../core/identifiers.ts'
import { MAX_SMALL_FILE_BYTES } from '../core/limits.ts'
import type { DeployRequest, IncompleteRequest } from '../marketplace/request.ts'
import { type Connection, readConnection } from '../runner/connection.ts'
import { readInstallInputs } from '../runner/host-inputs.ts'
import { createInputReader, type InputProblem, type InputReader } from '../runner/input-reader.ts'
import { apiKeySchema, baseUrlSchema, booleanSchema } from '../runner/input-schemas.ts'
import { readSource } from '../runner/source-input.ts'

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
    bases: readBases(read),
    slug: read.required('slug', slugSchema),
    kind: read.withDefault('kind', kindFromText, 'plugin'),
    version: read.withDefault('version', versionSchema, 'latest'),
    plan: readSource(read, workspace, read.required('install-plan', z.string()), 'install-plan', MAX_SMALL_FILE_BYTES),
    dryRun: read.withDefault('dry-run', booleanSchema, false),
    ...readInstallInputs(read, workspace),
  }
  const connection = readConnection(read, workspace)
  return { request, connection, secrets: read.secrets, problems: read.problems }
}

const kindFromText = z.pipe(z.string(), kindSchema)

function readBases(read: InputReader): DeployRequest['bases'] | undefined {
  const hub = read.required('hub-url', baseUrlSchema)
  const services = read.withDefault<string | undefined>('services-url', baseUrlSchema, hub)
  const deployments = read.withDefault<string | undefined>('deployments-url', baseUrlSchema, hub)
  return hub && services && deployments ? { hub, services, deployments } : undefined
}
