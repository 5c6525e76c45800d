import { requireProject } from '../../project/catalogue.ts'
import { createProjectKey, KEY_TITLES, type Purpose } from '../../project/project-keys.ts'
import {
  type Command,
  DATA_OPTION,
  DATA_USAGE,
  parseCommandLine,
  requireOption,
  withExistingStore,
} from '../command.ts'

export const devkey: Command = issuing('devkey', {
  summary: 'creates a dev key, which a workflow needs to log in',
  input: 'devkey',
})

export const credential: Command = issuing('credential', {
  summary: 'creates a deployment credential, which unlocks sealed versions',
  input: 'deployment-credential',
})

interface Issuing {
  readonly summary: string
  /** The action's input that takes the value. */
  readonly input: string
}

function issuing(purpose: Purpose, { summary, input }: Issuing): Command {
  return {
    summary,
    usage: `npm run hub -- project ${purpose} --project-id P --name N [options]

  --project-id P   the project that it is bound to
  --name N         what it is for
${DATA_USAGE}

Standard output gets the value, for the input ${input}, and nothing else. The hub cannot show it again.`,
    run: async args => {
      const options = { 'project-id': { type: 'string' }, name: { type: 'string' } } as const
      const { values } = parseCommandLine(args, { ...DATA_OPTION, ...options })
      const project_id = requireOption('project-id', values['project-id'])
      const request = { project_id, purpose, name: requireOption('name', values.name) }
      const { value, record } = await withExistingStore(values.data, store => {
        requireProject(store, project_id)
        return createProjectKey(store, request)
      })
      console.error(
        `Created the ${KEY_TITLES[purpose]} ${record.id} for the project ${project_id}. Save it now, the hub cannot show it again:`,
      )
      console.log(value)
    },
  }
}
