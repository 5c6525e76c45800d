import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createRunnerLog } from '../../src/runner/runner-log.ts'
import { capturedOutput } from './action-environment.ts'

function written(act: (log: ReturnType<typeof createRunnerLog>) => void): string[] {
  const log = createRunnerLog(text => text.replaceAll('hunter22', '***'))
  return capturedOutput(() => act(log))
    .output.split('\n')
    .slice(0, -1)
}

describe('createRunnerLog', () => {
  it('closes each group with its duration before the next one opens', () => {
    const lines = written(log => {
      log.group('one')
      log.info('a')
      log.group('two')
      log.end()
      log.end()
    })
    const shown = lines.map(line => line.replace(/\d+ ms/, 'n ms'))
    assert.deepEqual(shown, ['::group::one', 'a', '(n ms)', '::endgroup::', '::group::two', '(n ms)', '::endgroup::'])
  })

  for (const level of ['group', 'info', 'notice', 'warning'] as const) {
    it(`writes a ${level} as one redacted line without foreign commands`, () => {
      const [line, ...rest] = written(log => log[level]('a hunter22\r\n::error::b ##[error]c \u001b[31m'))
      assert.deepEqual(rest, [])
      assert.ok(line?.endsWith('a *** :·:error:·:b #·#[error]c'), line)
    })
  }
})
