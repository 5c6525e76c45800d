import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeploymentError, SignatureError } from '../../../src/core/errors.ts'
import { SourceError } from '../../../src/core/yaml/problems.ts'
import { buildVerifySummary, type CheckedFacts, type CheckedSubject } from '../../../src/runner/summaries/verify.ts'

const SUBJECT: CheckedSubject = {
  mode: 'hub',
  kind: 'plugin',
  name: 'greeter',
  version: 'latest',
  from: 'https://hub.example',
  pinned: undefined,
  plan: 'deploy/install.yaml',
  hostConfigs: [],
}
const FACTS: CheckedFacts = {
  version: '1.1.0',
  versionSource: 'plugin.yaml',
  sha256: 'ab'.repeat(32),
  size: 1234,
  repo: 'dev/greeter@v1.1.0',
  files: 12,
  bytes: 34_567,
  steps: 2,
}

describe('buildVerifySummary', () => {
  it('begins with the verdict, and says for each fact whether the signature covers it', () => {
    assert.equal(
      buildVerifySummary(SUBJECT, { facts: FACTS, error: undefined }),
      `### ✅ greeter 1.1.0 is verified: signature, contents and plan

| Checked | Found |
| --- | --- |
| Artifact | 1.2 kB, sha256 <code>${'ab'.repeat(32)}</code> |
| From | <code>https&#58;//hub.example</code> |
| Repository | dev/greeter&#64;v1.1.0, from an unsigned header in the hub's response |
| Signature | valid |
| Version | 1.1.0, from plugin.yaml, which is signed |
| Contents | plugin of 12 files, 35 kB |
| Plan | <code>deploy/install.yaml</code>, 2 steps |
`,
    )
  })

  it('lists the host configs, and does not say how many steps their default plans have', () => {
    const hostConfigs = Array.from({ length: 12 }, (_, index) => `${index}.yaml`)
    const subject = { ...SUBJECT, plan: undefined, hostConfigs }
    const summary = buildVerifySummary(subject, { facts: FACTS, error: undefined })
    assert.match(summary, /^\| Plan \| the default plan of each host \|$/m)
    assert.match(summary, /^\| Host configs \| <code>0\.yaml<\/code>, .*, <code>9\.yaml<\/code> and 2 more \|$/m)
  })

  it('gives the source of a version that the artifact does not name', () => {
    const facts: CheckedFacts = { ...FACTS, versionSource: 'requested' }
    for (const [asked, source] of [
      ['1.1.0', 'as requested'],
      ['latest', 'which the hub lists as its latest'],
    ] as const)
      assert.match(
        buildVerifySummary({ ...SUBJECT, version: asked }, { facts, error: undefined }),
        new RegExp(`^\\| Version \\| 1\\.1\\.0, ${source}; the artifact itself names no version \\|$`, 'm'),
      )
  })

  it('does not call a file invalid if it was not read to the end', () => {
    const error = new DeploymentError('cancelled', 'The run was cancelled.')
    assert.match(
      buildVerifySummary({ ...SUBJECT, mode: 'none' }, { facts: {}, error }),
      /^### ❌ deploy\/install\.yaml is not known to be valid; no artifact was checked\n/,
    )
  })

  it('does not vouch for a plan that was not checked', () => {
    const { steps: _, ...facts } = FACTS
    const summary = buildVerifySummary({ ...SUBJECT, plan: undefined }, { facts, error: undefined })
    assert.match(summary, /^### ✅ greeter 1\.1\.0 is verified: signature and contents; no plan was checked\n/)
    assert.doesNotMatch(summary, /^\| Plan/m)
  })

  it('says why it fails before it lists the facts, and vouches for nothing', () => {
    const error = new SignatureError('signature_mismatch', 'The bytes differ.')
    const facts = { version: '1.1.0', versionSource: 'requested', sha256: 'ab'.repeat(32), size: 9 } as const
    assert.equal(
      buildVerifySummary({ ...SUBJECT, plan: undefined }, { facts, error }),
      `### ❌ greeter 1.1.0 is not verified: do not install it

**Why:** The bytes differ. (<code>signature&#95;mismatch</code>)\\
**Next:** Do not deploy this version until you know the cause.

| Checked | Found |
| --- | --- |
| Artifact | 9 bytes, sha256 <code>${'ab'.repeat(32)}</code> |
| From | <code>https&#58;//hub.example</code> |
`,
    )
  })

  it('has no table when nothing was fetched, and shows paths without giving them any effect', () => {
    const problems = [1, 2].map(line => ({ message: 'no <b>', file: 'a|b*.yaml', line, column: 1 }))
    const error = new SourceError('invalid_plan', 'The plan', problems)
    const files = { plan: 'a|b*.yaml', hostConfigs: ['valid.yaml'] }
    const subject = { ...SUBJECT, ...files, mode: 'none', name: 'greeter', from: undefined } as const
    const summary = buildVerifySummary(subject, { facts: {}, error })
    assert.match(summary, /^### ❌ a&#124;b&#42;\.yaml is not valid; no artifact was checked\n/)
    assert.doesNotMatch(summary, /^\|/m)
    assert.equal(summary.match(/^- <code>a&#124;b&#42;\.yaml:[12]:1<\/code> no &#60;b&#62;$/gm)?.length, 2)
  })

  it('stays below 1 MiB, however many problems there are', () => {
    const file = `${'x'.repeat(4000)}.yaml`
    const problems = Array.from({ length: 100 }, (_, line) => ({ message: '*'.repeat(9000), file, line, column: 1 }))
    const error = new SourceError('invalid_plan', 'The plan', problems)
    assert.ok(Buffer.byteLength(buildVerifySummary(SUBJECT, { facts: {}, error })) < 1024 * 1024)
  })
})
