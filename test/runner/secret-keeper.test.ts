import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { keepSecrets } from '../../src/runner/secret-keeper.ts'

describe('keepSecrets', () => {
  it('redacts what is known from the beginning and what is learned on the way', () => {
    const secrets = keepSecrets(['hunter22'])
    assert.equal(secrets.redact('hunter22 and token-12345'), '*** and token-12345')
    secrets.hide('token-12345')
    assert.equal(secrets.redact('hunter22 and token-12345'), '*** and ***')
  })

  it('hides no word that a hub gives out as a token', () => {
    const secrets = keepSecrets([])
    for (const word of ['true', 'success', 'failed']) secrets.hide(word)
    assert.equal(secrets.redact('outcome success, changed true'), 'outcome success, changed true')
  })
})
