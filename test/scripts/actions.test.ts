import assert from 'node:assert/strict'
import { isAscii } from 'node:buffer'
import { describe, it } from 'node:test'
import { runInThisContext } from 'node:vm'
import { bundleText, replaceActionTables } from '../../scripts/actions.ts'

const README = '# X\n\n<!-- inputs -->\nold\n<!-- /inputs -->\n\ntext\n\n<!-- outputs -->\n<!-- /outputs -->\n\nend\n'

const ACTION = `
inputs:
  slug: {description: "The name", required: true}
  kind: {description: "plugin | service", default: plugin}
  keep-paths:
    description: >
      What belongs
      to the host
    default: |
      .env
      data
  ca-file: {description: "A PEM file"}
outputs:
  outcome: {description: "How it ended"}
`

const EXPECTED = `# X

<!-- inputs -->
| Input | What it is | Default |
| --- | --- | --- |
| \`slug\` | The name | **required** |
| \`kind\` | plugin \\| service | \`plugin\` |
| \`keep-paths\` | What belongs to the host | \`.env\`, \`data\` |
| \`ca-file\` | A PEM file |  |
<!-- /inputs -->

text

<!-- outputs -->
| Output | What it is |
| --- | --- |
| \`outcome\` | How it ended |
<!-- /outputs -->

end
`

describe('replaceActionTables', () => {
  it('writes both tables between their markers and keeps the rest', () => {
    assert.equal(replaceActionTables(README, ACTION), EXPECTED)
  })

  it('changes nothing the second time', () => {
    assert.equal(replaceActionTables(EXPECTED, ACTION), EXPECTED)
  })

  it('throws for a README without the markers', () => {
    assert.throws(() => replaceActionTables(README.replace('<!-- /inputs -->', ''), ACTION), {
      message: /has no <!-- inputs --> followed by/,
    })
    assert.throws(() => replaceActionTables(README.replace('<!-- outputs -->', ''), ACTION), {
      message: /has no <!-- outputs --> followed by/,
    })
  })
})

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
