import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { replaceActionTables } from '../../scripts/action-tables.ts'

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
    assert.throws(() => replaceActionTables(README.replace('<!-- /inputs -->', ''), ACTION))
    assert.throws(() => replaceActionTables(README.replace('<!-- outputs -->', ''), ACTION))
  })
})
