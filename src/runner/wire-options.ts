import type { Log } from '../core/log.ts'
import type { WireOptions } from '../net/wire.ts'
import type { Connection } from './connection.ts'
import { USER_AGENT } from './user-agent.ts'

export function wireOptions({ allowHttp, ca }: Connection, log: Log): WireOptions {
  return {
    allowHttp,
    userAgent: USER_AGENT,
    log: line => log.info(line),
    ...(ca === undefined ? {} : { ca }),
  }
}
