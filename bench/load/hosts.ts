import { deploy, type Target } from './host.ts'
import { newTally, type Tally } from './tally.ts'

/** Hosts that deploy at the same time. Each host makes its deployments one after the other. */
export interface Hosts {
  readonly count: number
  /** The number of deployments of each host. */
  readonly deployments: number
  readonly downloads: boolean
}

/** Resolves when every host has made all its deployments. The error of a failed deployment goes into the tally. */
export async function runHosts(target: Target, { count, deployments, downloads }: Hosts): Promise<Tally> {
  const tally = newTally()
  const run = async (hostId: string) => {
    for (let n = 0; n < deployments; n++)
      await deploy(target, { hostId, downloads }, tally).catch(error => tally.errors.push(error.message))
  }
  const name = downloads ? 'downloads' : 'reports'
  await Promise.all(Array.from({ length: count }, (_, n) => run(`${name}-${n}`)))
  return tally
}
