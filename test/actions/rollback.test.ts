import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { readRollbackInputs } from '../../src/actions/rollback.ts'
import { withInputs } from '../runner/action-environment.ts'

const DEFINITION: { inputs: Record<string, { default?: string }> } = parse(
  readFileSync(join(import.meta.dirname, '../../rollback/action.yml'), 'utf8'),
)
const DEFAULTS = Object.fromEntries(
  Object.entries(DEFINITION.inputs).map(([name, input]) => [name, input.default ?? '']),
)
const HUB = { 'hub-url': 'https://hub.example', 'api-key': 'the-api-key' }

const NOTHING = 'missing id, or project-id for a project, is required, but neither was given'

/** The problems of these inputs, each as its kind and the name of its input. */
function problemsOf(given: Record<string, string>): string[] {
  const inputs = { ...DEFAULTS, 'project-root': '/srv/app', ...given }
  const { problems } = withInputs(inputs, workspace => readRollbackInputs(workspace)).result
  return problems.map(({ kind, input, message }) => `${kind} ${input ?? message.split(':')[0]}`)
}

describe('readRollbackInputs', () => {
  const given: Record<string, [Record<string, string>, string[]]> = {
    'an id': [{ id: 'greeter' }, []],
    'an id and everything for a report': [{ ...HUB, id: 'greeter', slug: 'greeter' }, []],
    'a project': [{ 'project-id': 'shop' }, []],
    nothing: [{}, [NOTHING]],
    'a malformed project': [{ 'project-id': '../shop' }, ['invalid project-id']],
    'a slug alone': [{ slug: 'greeter' }, ['missing id is required, but slug was given']],
    'everything for a report, but no id': [{ ...HUB, slug: 'greeter' }, [NOTHING]],
    'an id, and a report without a slug': [{ ...HUB, id: 'greeter' }, ['invalid slug']],
    'an id, and a report without a hub': [{ id: 'greeter', slug: 'greeter' }, ['invalid hub-url', 'invalid api-key']],
    'a malformed id, and a report without a hub': [
      { id: '../greeter', slug: 'greeter' },
      ['invalid id', 'invalid hub-url', 'invalid api-key'],
    ],
    'an id, and a report to a malformed hub': [
      { ...HUB, id: 'greeter', slug: 'greeter', 'hub-url': 'hub.example' },
      ['invalid hub-url'],
    ],
    'a project and a report': [{ ...HUB, 'project-id': 'shop', slug: 'shop' }, ['invalid project-id']],
  }
  for (const [name, [inputs, problems]] of Object.entries(given))
    it(`reports each mistake once, given ${name}`, () => {
      assert.deepEqual(problemsOf(inputs), problems)
    })
})
