import { backUp } from '../backup/backup.ts'
import { restore as restoreBackup } from '../backup/restore.ts'
import { type Command, DATA_DEFAULT, DATA_OPTION, DATA_USAGE, withExistingStore } from './command.ts'
import { parseCommandLine, requireOption } from './command-line.ts'
import { countInWords } from './count-in-words.ts'
import { interruptible } from './interruption.ts'

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
