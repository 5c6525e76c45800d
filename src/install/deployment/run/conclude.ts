import { closeDeployment, closeUntouched } from '../../reports/close.ts'
import type { EndedDeployment, RunningDeployment } from '../deployment.ts'
import { writeHandover } from '../handover.ts'
import type { Ending } from './ending.ts'

/** Reports how a deployment ended. `onAccepted` gets the number of attempts after which the hub accepted the report. */
export async function conclude(
  { host, record, tools }: RunningDeployment,
  { end, error, unchecked }: Ending,
  onAccepted?: (attempts: number) => Promise<void>,
): Promise<EndedDeployment> {
  const address = host.sender?.address ?? null
  const handover = unchecked && writeHandover(host.layout, record.facts, unchecked)
  const closed = await closeDeployment(host, { record, end, address, onAccepted }, known =>
    tools.observer.onEnded({ ...known, error, handover }),
  )
  return { ...closed, error }
}

/** Reports the result in the outputs and to the hub, but not on the host. */
export async function concludeUntouched(
  { host, record, tools }: RunningDeployment,
  { end, error }: Ending,
): Promise<EndedDeployment> {
  const closed = await closeUntouched(host, { record, end }, known => tools.observer.onEnded({ ...known, error }))
  return { ...closed, error }
}
