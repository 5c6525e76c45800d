import { isSystemError, toHostError } from '../files/system-errors.ts'
import { readHostRecord, recordUnrestored } from '../host/installed/host-record.ts'
import type { Layout } from '../host/layout.ts'
import { keyOfService, type Service } from '../services/service.ts'

/**
 * Returns the services that may still be running files of a version that was rolled back, because the services were not
 * restored.
 */
export function findUnrestored(layout: Layout, services: readonly Service[]): readonly Service[] {
  const unrestored = new Set(readHostRecord(layout).unrestored)
  return services.filter(service => unrestored.has(keyOfService(service)))
}

/**
 * The services that a rollback or a later step restored, and those that a rollback could not restore or did not reach.
 */
export interface Restorations {
  readonly restored?: readonly Service[]
  readonly unrestored?: readonly Service[]
}

/**
 * Records the services that could not be restored, and forgets those that were restored. The record is durable when
 * this function returns.
 */
export async function noteRestorations(
  layout: Layout,
  { restored = [], unrestored = [] }: Restorations,
): Promise<void> {
  try {
    const { unrestored: before } = readHostRecord(layout)
    const gone = new Set(restored.map(keyOfService))
    const after = [...new Set([...before.filter(key => !gone.has(key)), ...unrestored.map(keyOfService)])]
    if (after.join('\n') !== before.join('\n')) await recordUnrestored(layout, after)
  } catch (error) {
    throw isSystemError(error)
      ? toHostError(error, `recording in ${layout.installed} which services were not restored`)
      : error
  }
}
