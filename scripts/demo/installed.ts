import { readInstalled } from '../../src/install/host/installed/host-record.ts'
import { layoutOf } from '../../src/install/host/layout.ts'

export interface InstalledPart {
  readonly id: string
  readonly version: string
}

/** The installed parts, according to the record that each deployment leaves on the host. */
export function listInstalled(projectRoot: string): InstalledPart[] {
  return readInstalled(layoutOf(projectRoot)).map(({ id, version }) => ({ id, version: version ?? 'unknown' }))
}
