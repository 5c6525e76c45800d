import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createSecretKeeper } from '../../src/runner/secret-keeper.ts'

const DIGEST = 'ab'.repeat(32)

describe('createSecretKeeper', () => {
  it('redacts the secrets it knows from the start and those it learns later', () => {
    const keeper = createSecretKeeper({ secrets: ['hunter22'], settingValues: ['correct horse'] })
    const text = 'hunter22, correct horse and token-12345-of-a-hub'
    assert.equal(keeper.redact(text), '***, *** and token-12345-of-a-hub')
    keeper.hide('token-12345-of-a-hub')
    assert.equal(keeper.redact(text), '***, *** and ***')
  })

  for (const [name, secret] of Object.entries({ 'a whole digest': DIGEST, 'part of a digest': DIGEST.slice(3, 30) })) {
    it(`does not redact ${name} that the run knows, even if a hub calls it a secret before or afterwards`, () => {
      const [early, late] = [0, 1].map(() => createSecretKeeper({ secrets: [], settingValues: [] }))
      early?.know({ artifact_sha256: DIGEST })
      early?.hide(secret)
      late?.hide(secret)
      late?.know([{ artifact_sha256: DIGEST, version: null }])
      for (const keeper of [early, late]) assert.equal(keeper?.redact(`sha256 ${DIGEST}.`), `sha256 ${DIGEST}.`)
    })
  }

  it('redacts a secret of a hub if the run knows only a part of it', () => {
    const keeper = createSecretKeeper({ secrets: [], settingValues: [] })
    keeper.know({ version: '1.0.0' })
    keeper.hide('token-for-1.0.0-of-a-hub')
    assert.equal(keeper.redact('1.0.0 with token-for-1.0.0-of-a-hub'), '1.0.0 with ***')
  })

  it('keeps an ordinary word of the settings readable if the run itself uses it', () => {
    const keeper = createSecretKeeper({ secrets: [], settingValues: ['greeter', 'hunter22'] })
    keeper.know({ slug: 'greeter' })
    assert.equal(keeper.redact('greeter hunter22'), 'greeter ***')
  })

  it("redacts the step's own secrets even in text that the run knows, because a hub may echo them there", () => {
    const keeper = createSecretKeeper({ secrets: ['hunter22'], settingValues: [] })
    keeper.know({ version: 'hunter22' })
    assert.equal(keeper.redact('version hunter22'), 'version ***')
  })
})
