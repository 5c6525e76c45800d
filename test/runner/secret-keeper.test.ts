import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createSecretKeeper } from '../../src/runner/secret-keeper.ts'

describe('createSecretKeeper', () => {
  it('redacts the secrets it knows from the start and those it learns later', () => {
    const secrets = createSecretKeeper(['hunter22'])
    assert.equal(secrets.redact('hunter22 and token-12345'), '*** and token-12345')
    secrets.hide('token-12345')
    assert.equal(secrets.redact('hunter22 and token-12345'), '*** and ***')
  })

  it('does not hide a short word that a hub issues as a token', () => {
    const secrets = createSecretKeeper([])
    for (const word of ['true', 'success', 'failed']) secrets.hide(word)
    assert.equal(secrets.redact('outcome success, changed true'), 'outcome success, changed true')
  })
})
