import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { hostIdSchema } from '../../src/core/identifiers.ts'

const CONTRACTS = readFileSync(new URL('../../docs/contracts.md', import.meta.url), 'utf8')

describe('hostIdSchema', () => {
  for (const id of ['a', 'app-1.example.com', 'Büro 3', '語'.repeat(255), '\u{1f600}'.repeat(255)])
    it(`accepts ${id.slice(0, 20)}`, () => assert.equal(hostIdSchema.parse(id), id))

  for (const [name, id] of [
    ['an empty text', ''],
    ['256 characters', 'a'.repeat(256)],
    ['a control character', 'a\u0000'],
    ['a soft hyphen', 'app\u00ad1'],
    ['a direction mark', 'app\u202e1'],
    ['a line separator', 'app\u2028'],
    ['a paragraph separator', 'app\u2029'],
  ] as const)
    it(`refuses ${name} with the words of docs/contracts.md`, () => {
      const [issue] = hostIdSchema.safeParse(id).error?.issues ?? []
      const rule = (issue?.message ?? '').replace('must be ', '')
      assert.match(rule, /control and format characters .*line separators/)
      assert.ok(CONTRACTS.includes(`| \`host-id\` | ${rule} |`))
    })
})
