import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { SourceSupplier } from '../../src/sources/supplier.ts'

describe('a project with parts from a marketplace', () => {
  const partsOf = (count: number) =>
    Array.from({ length: count }, (_, n) => ({
      shelf: 'plugins',
      id: `p${n}`,
      source: { from: 'marketplace', slug: `s${n}` },
    }))

  it('counts the parts and names the inputs that are missing', () => {
    const refusal = (marketplace: object, count: number) => () =>
      new SourceSupplier({ marketplace } as never, {} as never).requireInputs(partsOf(count) as never)
    const given = { hubUrl: 'https://hub.example.com', apiKey: 'key', apiKeys: new Map() }
    assert.throws(refusal(given, 22), {
      message: /p19 and 2 more from .* has no sources-signing-secret: .* this input /,
    })
    const ownKeys = { ...given, apiKey: undefined, signingSecret: 'secret', apiKeys: new Map([['s0', 'key']]) }
    assert.doesNotThrow(refusal(ownKeys, 1))
    assert.throws(refusal(ownKeys, 3), { message: /takes plugins\/p1, plugins\/p2 from .* no sources-api-key: / })
    assert.throws(refusal({ apiKeys: new Map() }, 1), { message: /takes plugins\/p0 from .* Add these inputs to / })
  })
})
