import assert from 'node:assert/strict'
import { isAscii } from 'node:buffer'
import { describe, it } from 'node:test'
import { runInThisContext } from 'node:vm'
import { bundleText } from '../../scripts/bundle-text.ts'

function run(code: string): unknown {
  const module = { exports: undefined }
  runInThisContext(bundleText(code))(module)
  return module.exports
}

describe('the text of the bundle', () => {
  it('is ASCII with the same meaning in strings, templates, patterns and comments', () => {
    const code =
      // biome-ignore lint/suspicious/noTemplateCurlyInString: the string is code
      "/* \u00e9\ud83d\ude00 */ module.exports = ['\u2713\u00df', `${1}\ud83d\ude00`, /^[\ud83d\ude00\u2713]$/u.test('\ud83d\ude00')]"
    assert.ok(!isAscii(Buffer.from(code)) && isAscii(Buffer.from(bundleText(code))))
    assert.deepEqual(run(code), ['\u2713\u00df', '1\ud83d\ude00', true])
  })

  it('begins with the code on its first line, so that stack traces name the lines of the file', () => {
    assert.match(bundleText('throw new Error()'), /^\(function .*throw new Error\(\)\n/)
  })

  it('may end with a comment', () => {
    assert.equal(run('module.exports = 1 // one'), 1)
  })

  for (const [what, code] of [
    ['a raw string', 'String.raw`a\u2713`'],
    ['a character after a backslash', "'\\\u2713'"],
  ] as const) {
    it(`is refused with ${what} that no escape can stand for`, () => {
      assert.throws(() => bundleText(code), /must be ASCII/)
    })
  }
})
