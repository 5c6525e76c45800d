import { UsageError } from '../errors.ts'
import { pruneReports } from '../marketplace/reports.ts'
import { pruneProjectReports } from '../project/reports.ts'
import { type Command, DATA_OPTION, DATA_USAGE, withExistingStore } from './command.ts'
import { parseCommandLine, requireOption } from './command-line.ts'
import { countInWords } from './count-in-words.ts'

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
