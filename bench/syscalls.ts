export interface SyscallTime {
  readonly name: string
  readonly calls: number
  readonly ms: number
}

/**
 * The number and time of each system call in the output of `strace -f -T -y`, longest first. An fsync of one of our
 * records counts for that record: `fsync journal.jsonl`.
 */
export function syscallTimes(trace: string): SyscallTime[] {
  const found = new Map<string, SyscallTime>()
  for (const { name, ms } of finishedCalls(trace)) {
    const before = found.get(name) ?? { name, calls: 0, ms: 0 }
    found.set(name, { name, calls: before.calls + 1, ms: before.ms + ms })
  }
  return [...found.values()].toSorted((a, b) => b.ms - a.ms)
}

function* finishedCalls(trace: string): Generator<{ name: string; ms: number }> {
  const unfinished = new Map<string, string>()
  for (const line of trace.split('\n')) {
    const [, thread = '', call, path] = /^(\d+) +(?:(\w+)\((?:\d+<([^>]*)>)?|<\.\.\. )/.exec(line) ?? []
    const name = call === undefined ? unfinished.get(thread) : nameOf(call, path)
    const seconds = /<([\d.]+)>$/.exec(line)?.[1]
    if (name !== undefined && seconds !== undefined) yield { name, ms: Number(seconds) * 1000 }
    else if (name !== undefined) unfinished.set(thread, name)
  }
}

function nameOf(call: string, path: string | undefined): string {
  const record = /\.hub-deploy(?:\/([^/]*))?/.exec(path ?? '')
  if (call !== 'fsync' || record === null) return call
  return `fsync ${record[1]?.replace(/\.\d+\.[0-9a-f-]{36}\.tmp$/, '') ?? '.hub-deploy'}`
}
