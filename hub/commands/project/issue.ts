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
  summary: 'makes a dev key, with which a workflow logs in to the hub',
  input: 'devkey',
})

export const credential: Command = issuing('credential', {
  summary: 'makes a deployment credential, which releases the key of a sealed version',
  input: 'deployment-credential',
})

interface Issuing {
  readonly summary: string
  /** The name of the action's input that takes the value. */
  readonly input: string
}

function issuing(purpose: Purpose, { summary, input }: Issuing): Command {
  return {
    summary,
    usage: `npm run hub -- project ${purpose} --project-id P --name N [options]

  --project-id P   the one project that it is good for
  --name N         what it is for
${DATA_USAGE}

It prints the value for the input ${input}, and nothing else, on standard output. It is not shown again.`,
    run: async args => {
      const options = { 'project-id': { type: 'string' }, name: { type: 'string' } } as const
      const { values } = parseCommandLine(args, { ...DATA_OPTION, ...options })
      const project_id = requireOption('project-id', values['project-id'])
      const request = { project_id, purpose, name: requireOption('name', values.name) }
      const { value, record } = await withExistingStore(values.data, store => {
        requireProject(store, project_id)
        return createProjectKey(store, request)
      })
      console.error(`The ${KEY_TITLES[purpose]} ${record.id} is for the project ${project_id}; it is shown only now:`)
      console.log(value)
    },
  }
}
