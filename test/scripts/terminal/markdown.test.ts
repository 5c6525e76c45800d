import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { markdownLines } from '../../../scripts/terminal/markdown.ts'

const SUMMARY = `### ✅ greeter 1.0.0 → 1.1.0 on app&#45;1
**Why:** step \`ok\`: <code>a&#124;b</code>. [Run](https://example.com/1)

> [!WARNING]
> Two files.

| Step |  | Took |
| --- | --- | --- |
| \`files\` | 58 files &amp; more | 15 ms |
| \`ok\` |  | 3.4 s |

|  |  |
| --- | --- |
| Hub | has it |

<details><summary>Details</summary>

- one
- two

</details>
`

describe('a job summary on a terminal', () => {
  it('has the text of its page', () => {
    assert.deepEqual(markdownLines(SUMMARY), [
      '✅ greeter 1.0.0 → 1.1.0 on app-1',
      '',
      'Why: step ok: `a|b`. Run (https://example.com/1)',
      '',
      'Warning: Two files.',
      '',
      'Step                    Took',
      'files  58 files & more  15 ms',
      'ok                      3.4 s',
      '',
      'Hub  has it',
      '',
      'Details',
      '',
      '- one',
      '- two',
    ])
  })

  it('breaks a long line at a space', () => {
    const lines = markdownLines(`${'word '.repeat(30)}\n`)
    assert.deepEqual(
      lines.map(line => line.length),
      [99, 49],
    )
  })

  it('cannot control the terminal', () => {
    const [line = ''] = markdownLines('a&#27;[2Jb&#x9b;c\u001b[31md &#8238;e')
    assert.equal(line, 'a [2Jb c [31md  e')
  })
})
