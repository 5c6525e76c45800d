import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { keysOfSchema } from '../../../src/core/document/schema-keys.ts'
import { hostConfigSchema } from '../../../src/core/plan/host-config-schema.ts'

describe('keysOfSchema', () => {
  const cases: [path: string[], keys: string[]][] = [
    [['docker'], ['container']],
    [['plugins'], []],
    [
      ['plugins', 'a'],
      ['unit', 'container', 'deployment', 'healthcheck'],
    ],
    [
      ['notify', 'deployed'],
      ['command', 'env', 'timeout'],
    ],
    [['supervisor'], []],
    [['unknown', 'key'], []],
    [['__proto__', 'key'], []],
  ]
  for (const [path, keys] of cases)
    it(`returns ${keys.length === 0 ? 'no keys' : keys.join(', ')} for ${path.join('.')}`, () =>
      assert.deepEqual(keysOfSchema(hostConfigSchema, path), keys))
})
