import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { readPartPluginYaml } from '../../../src/project/parts/part-plugin-yaml.ts'
import { temporaryDirectory, writeTree } from '../../install/temporary-directory.ts'

describe('readPartPluginYaml', () => {
  it('names the part whose file it refuses', t => {
    const staged = temporaryDirectory(t)
    writeTree(staged, { 'plugin.yaml': 'environment: [1]\n' })
    assert.throws(() => readPartPluginYaml({ shelf: 'plugins', id: 'cart' }, staged), {
      code: 'not_a_plugin',
      message:
        /^plugins\/cart: The artifact's plugin\.yaml has an unexpected environment .* marketplace_kind: service\)\.$/,
    })
  })
})
