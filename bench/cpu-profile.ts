import { basename } from 'node:path'

/** The fields of a `node --cpu-prof` file that the bench reads. */
export interface CpuProfile {
  readonly nodes: readonly { id: number; callFrame: { functionName: string; url: string } }[]
  readonly samples: readonly number[]
  /** Microseconds since the previous sample. */
  readonly timeDeltas: readonly number[]
}

/** The time inside each function, without its callees and without idle time, longest first. */
export function selfTimes(profiles: readonly CpuProfile[]): { name: string; ms: number; share: number }[] {
  const times = new Map<string, number>()
  for (const profile of profiles) addSelfTimes(profile, times)
  times.delete('(idle)')
  const total = [...times.values()].reduce((sum, ms) => sum + ms, 0)
  return [...times].map(([name, ms]) => ({ name, ms, share: ms / total })).toSorted((a, b) => b.ms - a.ms)
}

function addSelfTimes({ nodes, samples, timeDeltas }: CpuProfile, times: Map<string, number>): void {
  const names = new Map(nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]))
  for (const [index, id] of samples.entries()) {
    const name = names.get(id) ?? '(unknown)'
    times.set(name, (times.get(name) ?? 0) + (timeDeltas[index] ?? 0) / 1000)
  }
}

function nameOf({ functionName, url }: { functionName: string; url: string }): string {
  const name = functionName === '' ? '(anonymous)' : functionName
  return url === '' ? name : `${name} in ${basename(url)}`
}
