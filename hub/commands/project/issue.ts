import { labelSchema } from '../../names.ts'
import { requireProject } from '../../project/catalogue.ts'
import { createProjectKey, KEY_TITLES, type Purpose } from '../../project/project-keys.ts'
import { type Command, DATA_OPTION, DATA_USAGE, SILENT_USAGE, withExistingStore } from '../command.ts'
import { parseCommandLine, requireForm, requireOption } from '../command-line.ts'

const PUBLISH_USAGE = `
  --publish        lets the key publish versions too: for a publisher's machine, not for hosts`

export const devkey: Command = issuing('devkey', {
  summary: 'creates a dev key, which a workflow needs to log in',
  input: 'devkey',
  canPublish: true,
})

export const credential: Command = issuing('credential', {
  summary: 'creates a deployment credential, which unlocks sealed versions',
  input: 'deployment-credential',
})

interface Issuing {
  readonly summary: string
  /** The name of the project action's input for the key. */
  readonly input: string
  /** True if the command has the option --publish, for a key that can also publish. */
  readonly canPublish?: boolean
}

function issuing(purpose: 'devkey' | 'credential', { summary, input, canPublish = false }: Issuing): Command {
  return {
    summary,
    usage: `npm run hub -- project ${purpose} --project-id P --name N [options]

  --project-id P   the project that the ${KEY_TITLES[purpose]} is bound to
  --name N         what the ${KEY_TITLES[purpose]} is for${canPublish ? PUBLISH_USAGE : ''}
${DATA_USAGE}

Standard output gets the value, for the input ${input}, and nothing else. The hub cannot show it again.
${SILENT_USAGE}`,
    run: async args => {
      const options = { 'project-id': { type: 'string' }, name: { type: 'string' } } as const
      const publish = canPublish ? ({ publish: { type: 'boolean', default: false } } as const) : {}
      const { values } = parseCommandLine(args, { ...DATA_OPTION, ...options, ...publish })
      const project_id = requireOption('project-id', values['project-id'])
      const issued: Purpose = values.publish === true ? 'publisher' : purpose
      const name = requireOption('name', values.name)
      requireForm('name', name, labelSchema)
      const request = { project_id, purpose: issued, name }
      const { value, record } = await withExistingStore(values.data, store => {
        requireProject(store, project_id)
        return createProjectKey(store, request)
      })
      console.error(
        `Created the ${KEY_TITLES[purpose]} ${record.id} for the project ${project_id}. Save it now, because the hub cannot show it again:`,
      )
      console.log(value)
    },
  }
}
