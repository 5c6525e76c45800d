import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ArtifactError } from '../../src/core/errors.ts'
import { SourceError } from '../../src/core/yaml/problems.ts'
import type { LocalReport } from '../../src/install/reports/local-report.ts'
import { Annotator } from '../../src/runner/annotations.ts'
import { NO_SECRETS, reportOf } from '../install/prepared-host.ts'
import { capturedOutput } from './action-environment.ts'

function linesOf(error: Error, report: Partial<LocalReport> = {}, redact = NO_SECRETS.redact): string[] {
  const failed = reportOf({ outcome: 'failed', ...report })
  const { output } = capturedOutput(() => new Annotator(redact).annotateFailure(error, failed))
  return output.split('\n').filter(line => line !== '')
}

function failureOf(
  code: 'not_found' | 'step_failed' | 'unhealthy' | 'internal_error',
  message: string,
): Partial<LocalReport> {
  return { error: { code, message, step: null } }
}

function problems(count: number) {
  return Array.from({ length: count }, (_, index) => ({
    message: `problem ${index + 1}`,
    file: 'install.yaml',
    line: index + 1,
    column: 3,
  }))
}

describe('Annotator', () => {
  it('writes one error annotation with the code and the cause, and no stack', () => {
    const lines = linesOf(new ArtifactError('not_found', 'gone'), failureOf('not_found', 'gone'))
    assert.deepEqual(lines, ['::error title=not_found::gone'])
  })

  it('annotates each problem of a plan at its file, line and column', () => {
    const lines = linesOf(new SourceError('invalid_plan', 'The plan', problems(2)))
    assert.equal(lines.length, 2)
    for (const [index, line] of lines.entries()) {
      assert.match(line, new RegExp(`^::error .*file=install\\.yaml,line=${index + 1},col=3::problem ${index + 1}$`))
    }
  })

  it('writes at most the ten annotations that the runner shows, and logs the rest', () => {
    const lines = linesOf(new SourceError('invalid_plan', 'The plan', problems(13)))
    assert.equal(lines.filter(line => line.startsWith('::error')).length, 10)
    assert.deepEqual(lines.slice(10), [
      'install.yaml:11:3: problem 11',
      'install.yaml:12:3: problem 12',
      'install.yaml:13:3: problem 13',
    ])
  })

  it('names, after the cause, the changes that could not be undone', () => {
    const rollback = { restored: false, problems: ['a is off.', 'b is off.'], verified: null, healthy: null }
    const [line] = linesOf(new Error('x'), { ...failureOf('not_found', 'the cause.'), rollback })
    assert.ok(line?.endsWith('::the cause. — During the rollback: a is off. b is off.'))
  })

  for (const [code, times, what] of [
    ['step_failed', 1, 'the sentence with which a step failed'],
    ['unhealthy', 2, 'the sentence that calls both versions unhealthy'],
  ] as const) {
    it(`writes ${times === 1 ? 'once' : 'twice'} ${what}`, () => {
      const rollback = { restored: true, problems: ['it said no.', 'b is off.'], verified: true, healthy: false }
      const [line = '', alarm = ''] = linesOf(new Error('x'), { ...failureOf(code, 'it said no.'), rollback })
      assert.equal(`${line}${alarm}`.split('it said no.').length - 1, times, alarm)
      assert.ok(alarm.endsWith('b is off.'), alarm)
    })
  }

  it('writes a separate error when the restored version is unhealthy', () => {
    const rollback = { restored: true, problems: ['tcp 127.0.0.1:1 refused.'], verified: true, healthy: false }
    const [line, alarm, ...more] = linesOf(new Error('x'), { ...failureOf('unhealthy', 'ok: not healthy.'), rollback })
    assert.equal(line, '::error title=unhealthy::ok: not healthy.')
    assert.match(alarm ?? '', /^::error title=unhealthy::.*1\.0\.0, which is installed again, is not healthy.*refused/)
    assert.deepEqual(more, [])
  })

  it('redacts and cleans the text that it writes', () => {
    const message = 'key hunter22\r\n::stop-commands::x\n##[error]y'
    const lines = linesOf(new Error(message), failureOf('not_found', message), text =>
      text.replaceAll('hunter22', '***'),
    )
    assert.equal(lines.length, 1)
    assert.doesNotMatch(lines[0] ?? '', /hunter22|^::stop|##\[/)
  })

  it('stays within the 4,096 characters of an annotation', () => {
    const message = 'x'.repeat(10_000)
    const [line] = linesOf(new Error(message), failureOf('not_found', message))
    assert.ok((line?.length ?? 0) <= 4096)
  })

  it('logs the stack of an internal error', () => {
    const lines = linesOf(new TypeError('a bug'), failureOf('internal_error', 'a bug'))
    assert.equal(lines.length, 2)
    assert.match(lines[1] ?? '', /annotations\.test/)
  })
})
