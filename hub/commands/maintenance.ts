import { backUp } from '../backup/backup.ts'
import { restoreBackup } from '../backup/restore.ts'
import { HubError, UsageError } from '../errors.ts'
import { pruneReports } from '../marketplace/reports.ts'
import { pruneProjectReports } from '../project/reports.ts'
import { type Command, countInWords, DATA_DEFAULT, DATA_OPTION, DATA_USAGE, withExistingStore } from './command.ts'
import { parseCommandLine, requireOption } from './command-line.ts'

export const backup: Command = {
  summary: 'writes everything that a hub stores to one file; the hub may keep running',
  usage: `npm run hub -- backup --to FILE [options]

  --to FILE        a new tar file, which only its owner can read
${DATA_USAGE}

The file contains the key of sealed projects and the hashes of all credentials: keep it as safe as the data folder.`,
  run: async args => {
    const { values } = parseCommandLine(args, { ...DATA_OPTION, to: { type: 'string' } })
    const file = requireOption('to', values.to)
    const { artifacts, bytes } = await withExistingStore(values.data, store =>
      interruptible('no backup was written', signal => backUp(store, file, signal)),
    )
    console.log(`Wrote ${file}: ${countInWords(artifacts, 'artifact')}, ${bytes} bytes.`)
  },
}

export const restore: Command = {
  summary: 'restores a data folder from a backup',
  usage: `npm run hub -- restore --from FILE [options]

  --from FILE      a file that "backup" wrote
  --data DIR       the data folder, which must be new or empty (default ${DATA_DEFAULT})`,
  run: async args => {
    const { values } = parseCommandLine(args, { ...DATA_OPTION, from: { type: 'string' } })
    const file = requireOption('from', values.from)
    const { artifacts, madeAt } = await interruptible('nothing was restored', signal =>
      restoreBackup(file, values.data, signal),
    )
    console.log(`Restored ${values.data}: ${countInWords(artifacts, 'artifact')}.`)
    console.log(
      `This is the hub as it was at ${madeAt.toISOString().slice(0, 19)}Z: repeat every revocation, yank and renewal since then.`,
    )
  },
}

const DAY_MS = 86_400_000

export const prune: Command = {
  summary: 'removes old reports',
  usage: `npm run hub -- prune --older-than 365d [options]

  --older-than Nd  removes the reports that this hub received more than N days ago
${DATA_USAGE}

Keeps the newest report and the newest success of each plugin or service on each host, and of each project. Keeps no
such report of a plugin or service that was never published here and never deployed successfully. The hub may keep
running.`,
  run: async args => {
    const { values } = parseCommandLine(args, { ...DATA_OPTION, 'older-than': { type: 'string' } })
    const days = parseDays(requireOption('older-than', values['older-than']))
    const before = new Date(Date.now() - days * DAY_MS)
    const removed = await withExistingStore(
      values.data,
      async store => (await pruneReports(store, before)) + (await pruneProjectReports(store, before)),
    )
    console.log(`Removed ${countInWords(removed, 'report')} older than ${countInWords(days, 'day')}.`)
  },
}

function parseDays(text: string): number {
  const days = /^([1-9]\d{0,4})d$/.exec(text)?.[1]
  if (days === undefined)
    throw new UsageError(`The option --older-than must be a number of days such as 365d, not ${JSON.stringify(text)}.`)
  return Number(days)
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/**
 * Runs work that takes a while and cleans up after itself. A signal that would end the process aborts the work. If the
 * work then throws, this function throws HubError 500 with the consequence, such as `no backup was written`.
 */
async function interruptible<T>(consequence: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const interruption = new AbortController()
  const interrupt = () => interruption.abort()
  for (const signal of SIGNALS) process.on(signal, interrupt)
  try {
    return await work(interruption.signal)
  } catch (error) {
    throw interruption.signal.aborted ? new HubError(500, `Interrupted: ${consequence}.`) : error
  } finally {
    for (const signal of SIGNALS) process.off(signal, interrupt)
  }
}
