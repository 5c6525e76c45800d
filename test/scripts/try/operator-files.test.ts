import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { UsageError } from '../../../hub/errors.ts'
import { pluginToBreak } from '../../../scripts/try/operator-files.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'

describe('the plugin of the step that fails', () => {
  it('is the first one in the plan', t => {
    const folder = temporaryDirectory(t)
    const steps = ['- {id: early, action: notify}', '- {id: a, plugin: cart}', '- {id: b, plugin: till}']
    writeTree(folder, { 'deployment/install.yaml': `steps:\n${steps.join('\n')}\n` })
    assert.equal(pluginToBreak(folder), 'cart')
  })

  const refused = {
    'a plan without a plugin': [
      '- {id: a, extension: mailer}',
      /needs a step with a plugin in .*: remove the option\.$/,
    ],
    'a plan that already has a step with that id': [
      '- {id: broken, plugin: cart}',
      /"broken", but .* has one already: rename/,
    ],
  } as const
  for (const [name, [step, message]] of Object.entries(refused))
    it(`cannot be chosen in ${name}`, t => {
      const folder = temporaryDirectory(t)
      writeTree(folder, { 'deployment/install.yaml': `steps:\n${step}\n` })
      assert.throws(
        () => pluginToBreak(folder),
        error => error instanceof UsageError && message.test(error.message),
      )
    })
})
