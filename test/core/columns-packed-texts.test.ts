import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PackedTexts } from '../../src/core/columns.ts'

const TEXTS: Record<string, readonly string[]> = {
  'texts of several blocks': Array.from({ length: 5000 }, (_, at) => `plugins/greeter/${at}`),
  'texts that are longer than a block': ['a', 'b'.repeat(1_000_000), 'c', 'd'.repeat(300_000)],
  'empty texts': ['', '', 'a', ''],
  'characters of every length': ['a', '\u00e9', '\uff21', '\u{1f600}', '\u{1f600}'.repeat(30_000)],
}

describe('packed texts', () => {
  for (const [name, texts] of Object.entries(TEXTS)) {
    it(`return the texts that were added: ${name}`, () => {
      const packed = new PackedTexts()
      for (const text of texts) packed.add(text)
      assert.equal(packed.length, texts.length)
      for (const [at, text] of texts.entries()) assert.equal(packed.at(at), text)
    })
  }
})
