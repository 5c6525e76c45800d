import { z } from 'zod'
import { toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import type { ServiceAction } from './commands.ts'
import { describeService, type Service, serviceSchema } from './service.ts'
import { superviseService } from './supervise.ts'

/** That a plan has a service started, stopped or restarted, and how it was before; as written to the journal. */
export const serviceChangeSchema = z.object({
  service: serviceSchema,
  action: z.enum(['start', 'stop', 'restart']),
  was_running: z.boolean(),
  /** Of a Kubernetes deployment; null elsewhere. */
  replicas: z.number().int().nonnegative().nullable(),
})
export type ServiceChange = z.infer<typeof serviceChangeSchema>

export interface RestoredServices {
  /** Whether any of them runs again as it did before. */
  isRunning: boolean
  /** What could not be brought back, one sentence each. */
  problems: string[]
}

/**
 * Brings the services that a plan touched back to how they were before it, newest first, after the old files are back:
 * what ran is restarted on them, what did not run is stopped. Goes on after a failure and tells each; may be repeated.
 */
export async function restoreServices(changes: readonly ServiceChange[], log: Log): Promise<RestoredServices> {
  const restored: RestoredServices = { isRunning: false, problems: [] }
  for (const { first, last } of touchedServices(changes)) {
    const action = restoringAction(first, last)
    if (action === undefined) continue
    try {
      log.info(`Back to the old version: ${action} ${describeService(first.service)}.`)
      await superviseService(first.service, action, first.replicas)
      restored.isRunning ||= action !== 'stop'
    } catch (error) {
      restored.problems.push(toDeployError(error).message)
    }
  }
  return restored
}

function restoringAction(first: ServiceChange, last: ServiceChange): ServiceAction | undefined {
  if (!first.was_running) return last.action === 'stop' ? undefined : 'stop'
  return last.action === 'stop' ? 'start' : 'restart'
}

/** Each touched service with its first and its last change, the one touched last first. */
function touchedServices(changes: readonly ServiceChange[]): { first: ServiceChange; last: ServiceChange }[] {
  const touched = new Map<string, { first: ServiceChange; last: ServiceChange }>()
  for (const change of changes) {
    const key = keyOf(change.service)
    const known = touched.get(key)
    touched.delete(key)
    touched.set(key, { first: known?.first ?? change, last: change })
  }
  return [...touched.values()].reverse()
}

function keyOf(service: Service): string {
  return JSON.stringify(service)
}
