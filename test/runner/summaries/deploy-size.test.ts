import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { marked } from 'marked'
import { DeploymentError, ERROR_CODES } from '../../../src/core/errors.ts'
import { SourceError } from '../../../src/core/yaml/problems.ts'
import { DryRunResult } from '../../../src/install/reports/result.ts'
import { buildDeploySummary, type SummaryFacts } from '../../../src/runner/summaries/deploy.ts'
import { nextStep } from '../../../src/runner/summaries/failure.ts'
import { reportOf } from '../../install/prepared-host.ts'

const MEBIBYTE = 1024 * 1024
/** Each character takes five or six in the summary. A hub, an archive or a child process may send a megabyte. */
const LONG = '|*'.repeat(MEBIBYTE / 2)
const ATTACKS = [
  '</details>\n# h',
  '</summary></code></td></table><img src=x onerror=alert(1)>',
  '| a | b |\n| --- | --- |',
  '](https://evil.example) [x](https://evil.example) ![y](https://evil.example/z.png) <https://evil.example>',
  '\\\n**b** __i__ ~~s~~ `c` $x$ &lt;b&gt; &#60;i&#62; @everyone #1',
  '> [!CAUTION]\n> - item\n---\n===\n```\ncode',
  '\u202e\u200b\u0000\u001b[31m::error::x ##[group]y',
]

/** Facts with this text wherever a summary may contain foreign text, and with `count` items in each list. */
function factsOf(text: string, count: number): SummaryFacts {
  const many = <Item>(make: (index: number) => Item): Item[] => Array.from({ length: count }, (_, index) => make(index))
  const step = { action: text, status: 'warned' as const, duration_ms: 1, error: text, did: text }
  const dryRun = new DryRunResult()
  for (let index = 0; index < count; index++) dryRun.add('changed', text, () => ({ before: '1 kB', after: '2 kB' }))
  dryRun.removals.push(...many(() => text))
  const problems = many(line => ({ message: text, file: text, line, column: 1 }))
  return {
    report: reportOf({
      slug: text,
      version: text,
      previous_version: text,
      host_id: text,
      deployment_id: text,
      artifact_sha256: text,
      signer_public_key: text,
      outcome: 'inconsistent',
      plugins: many(() => ({ id: text, version: text })),
      drift: many(() => ({ shelf: 'plugins', id: text, version: text, added: [text], removed: [], changed: [text] })),
      states: [{ state: text, at: '2026-01-02T03:04:05.678Z' }],
      steps: many(() => ({ id: text, ...step })),
      error: { code: 'invalid_plan', message: text, step: text },
      rollback: { restored: false, problems: many(() => text), verified: false, healthy: false },
      reported: { accepted: false, attempts: 1, error: text },
      run: { ...reportOf().run, url: `https://code-host.example/${text}` },
    }),
    reportPath: text,
    plannedSteps: many(() => ({ id: text, action: text, isIdle: true })),
    dryRun,
    recovered: text,
    notes: many(index => ({ level: index % 2 === 0 ? ('warning' as const) : ('notice' as const), text })),
    error: new SourceError('invalid_plan', text, problems),
  }
}

describe('a summary', () => {
  it('stays below 1 MiB whatever it contains, and says that there is more', () => {
    const summary = buildDeploySummary(factsOf(LONG, 10_000))
    assert.ok(Buffer.byteLength(summary) < MEBIBYTE, String(Buffer.byteLength(summary)))
    assert.ok((summary.match(/ more/g)?.length ?? 0) >= 5)
  })

  it('always contains the failed step, wherever it is in the plan', () => {
    const steps = Array.from({ length: 10_000 }, (_, index) => ({
      ...{ id: `step-${index}`, action: 'prepare', duration_ms: 1, error: null },
      status: index === 9000 ? ('failed' as const) : ('done' as const),
    }))
    const summary = buildDeploySummary({ report: reportOf({ outcome: 'failed', steps }), plannedSteps: [] })
    assert.match(summary, /✗ <code>step-9000<\/code>/)
    assert.match(summary, /And 9,?899 more steps\./)
  })

  for (const attack of ATTACKS)
    it(`has the same structure with ${JSON.stringify(attack)} in every field`, () => {
      const structureOf = (text: string): string[] => {
        const html = marked.parse(buildDeploySummary(factsOf(text, 3)), { async: false, gfm: true })
        return html.match(/<\/?[a-z][^>]*>/g)?.filter(tag => !tag.startsWith('<a ') && tag !== '</a>') ?? []
      }
      assert.deepEqual(structureOf(attack), structureOf('plain'))
      const html = marked.parse(buildDeploySummary(factsOf(attack, 3)), { async: false, gfm: true })
      assert.doesNotMatch(html, /href="[^"]*evil|<img|onerror=alert\(1\)>/)
    })
})

describe('nextStep', () => {
  it('has short advice for every code, as sentences', () => {
    for (const code of ERROR_CODES) assert.match(nextStep(code, undefined), /^[A-Z].{10,260}[.]$/, code)
  })

  it('puts advice for the specific error before the advice for its code', () => {
    const error = new DeploymentError('unhealthy', 'It is broken.', { next: 'Read its log' })
    assert.match(nextStep('unhealthy', error), /^Read its log\. Correct the version/)
    assert.doesNotMatch(nextStep('cancelled', error), /Read its log/)
  })
})
