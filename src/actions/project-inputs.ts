import { z } from 'zod/mini'
import { projectIdSchema, versionSchema } from '../core/identifiers.ts'
import { parseSignerKeys } from '../core/trust/signer-keys.ts'
import type { IncompleteProjectRequest } from '../project/request.ts'
import { type Connection, readConnection } from '../runner/connection.ts'
import { readInstallInputs } from '../runner/host-inputs.ts'
import { createInputReader, type InputProblem, type InputReader } from '../runner/input-reader.ts'
import { baseUrlSchema, booleanSchema } from '../runner/input-schemas.ts'

export interface ProjectInputs {
  request: IncompleteProjectRequest
  connection: Connection
  secrets: readonly string[]
  problems: readonly InputProblem[]
}

/** Reads every input of the project action; what is wrong is collected, not thrown. Defaults stand in only for what was left out. */
export function readProjectInputs(workspace: string): ProjectInputs {
  const read = createInputReader()
  const request = {
    devkey: read.requiredSecret('devkey'),
    deploymentCredential: read.requiredSecret('deployment-credential'),
    hubUrl: read.required('hub-url', baseUrlSchema),
    projectId: read.required('project-id', projectIdSchema),
    signerKeys: readSignerKeys(read),
    version: read.withDefault('version', versionSchema, 'latest'),
    ...readInstallInputs(read, workspace),
  }
  refuseDryRun(read)
  return { request, connection: readConnection(read, workspace), secrets: read.secrets, problems: read.problems }
}

function readSignerKeys(read: InputReader): IncompleteProjectRequest['signerKeys'] {
  const text = read.required('signer-public-key', z.string())
  try {
    return text === undefined ? undefined : parseSignerKeys(text)
  } catch (error) {
    // A sentence of its own there, a part of the list of problems here.
    const sentence = error instanceof Error ? error.message : String(error)
    read.refuse('signer-public-key', sentence.replace(/^signer-public-key |\.$/g, ''))
    return undefined
  }
}

/** Not an input of this action; the runner passes it all the same, and whoever gives it expects that nothing is changed. */
function refuseDryRun(read: InputReader): void {
  if (read.withDefault('dry-run', booleanSchema, false) !== false)
    read.refuse('dry-run', 'is not an input of the project action, which would deploy for real: leave it out')
}
