import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { type ActionName, DECLARED_INPUTS, findStrayInputs } from '../../src/runner/declared-inputs.ts'

const ROOT = join(import.meta.dirname, '../..')

describe('DECLARED_INPUTS', () => {
  for (const [action, names] of Object.entries(DECLARED_INPUTS))
    it(`has the inputs of the action.yml of ${action}, in its order`, () => {
      const folder = action === 'deploy' ? ROOT : join(ROOT, action)
      const { inputs } = parse(readFileSync(join(folder, 'action.yml'), 'utf8'))
      assert.deepEqual(names, Object.keys(inputs))
    })
})

/** The problems and warnings about one input, which the runner passes in capitals. */
function about(action: ActionName, name: string, value = 'x') {
  const { problems, warnings } = findStrayInputs(action, { [`INPUT_${name.toUpperCase()}`]: value, PATH: '/bin' })
  return [...problems.map(({ message }) => message), ...warnings]
}

describe('findStrayInputs', () => {
  const meant: [written: string, meant: string][] = [
    ['dry_run', 'dry-run'],
    ['dry run', 'dry-run'],
    ['dryrun', 'dry-run'],
    ['artifact_sha256', 'artifact-sha256'],
    ['artifact-sha265', 'artifact-sha256'],
    ['keep-path', 'keep-paths'],
    ['hubs-url', 'hub-url'],
    ['project-rot', 'project-root'],
  ]
  for (const [written, name] of meant)
    it(`refuses ${written}`, () => {
      assert.deepEqual(about('deploy', written), [`${written} is not an input of this action: did you mean ${name}?`])
    })

  for (const name of ['dry-run', 'DRY-RUN', 'hub-url', 'slog', 'kid', 'who-to-greet', 'comment'])
    it(`says nothing about ${name}`, () => assert.deepEqual(about('deploy', name), []))

  it('says nothing about an empty input', () => assert.deepEqual(about('deploy', 'dry_run', ' '), []))

  it('warns of an input that only another action has', () => {
    assert.deepEqual(about('status', 'slug'), [
      'slug is an input of deploy, rollback, verify, fleet, but not of this action, so it has no effect.',
    ])
  })

  for (const written of ['dry-run', 'dry_run', 'dry run'])
    it(`warns that an action without dry runs makes none for ${written}`, () => {
      assert.deepEqual(about('project', written), [
        `${written} is an input of deploy, rollback, remove, but not of this action, so it has no effect.`,
      ])
    })
})
