import type { Log } from '../../core/log.ts'
import { faultOfAuthorities } from '../../net/policy/trust.ts'
import type { WireOptions } from '../../net/wire.ts'
import type { InputReader } from './input-reader.ts'
import { booleanSchema } from './input-schemas.ts'

const MAX_CA_BYTES = 1024 * 1024
/** The name by which this action identifies itself in requests to a hub. */
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
