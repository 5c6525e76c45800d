import { labelSchema } from '../../names.ts'
import { createProject } from '../../project/catalogue.ts'
import { type Command, DATA_OPTION, DATA_USAGE, SILENT_USAGE, withStore } from '../command.ts'
import { parseCommandLine, requireForm, requireOption } from '../command-line.ts'

export const create: Command = {
  summary: 'creates a project and prints its id',
  usage: `npm run hub -- project create --name N [options]

  --name N         the display name
${DATA_USAGE}

Standard output gets the id and nothing else. Use it as project_id in deployment/install.yaml, and as --project-id.
${SILENT_USAGE}`,
  run: async args => {
    const { values } = parseCommandLine(args, { ...DATA_OPTION, name: { type: 'string' } })
    const name = requireOption('name', values.name)
    requireForm('name', name, labelSchema)
    console.log((await withStore(values.data, store => createProject(store, name))).project_id)
  },
}
