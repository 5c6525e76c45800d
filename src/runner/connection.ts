import { z } from 'zod/mini'
import { readTrust } from '../net/trust.ts'
import type { InputReader } from './input-reader.ts'
import { booleanSchema } from './input-schemas.ts'
import { readSource } from './source-input.ts'

const MAX_CA_BYTES = 1024 * 1024

/** How to reach the hub, beside the request itself. */
export interface Connection {
  allowHttp: boolean
  /** PEM text. */
  ca: string | undefined
}

export function readConnection(read: InputReader, workspace: string): Connection {
  return {
    allowHttp: read.withDefault('allow-http', booleanSchema, false) ?? false,
    ca: readAuthorities(read, workspace),
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
