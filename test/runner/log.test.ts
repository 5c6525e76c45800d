import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { createRunnerLog } from '../../src/runner/log.ts'
import { capturedOutput } from './action-environment.ts'

function written(act: (log: ReturnType<typeof createRunnerLog>) => void): string[] {
  const log = createRunnerLog(text => text.replaceAll('hunter22', '***'))
  return capturedOutput(() => act(log))
    .output.split('\n')
    .slice(0, -1)
}

describe('createRunnerLog', () => {
  it('gives each group a title that says what it did and for how long', () => {
    const lines = written(log => {
      log.group('one')
      log.info('a')
      log.did('this')
      log.did('that')
      log.group('two')
      log.end()
      log.end()
      log.info('b')
    })
    const shown = lines.map(line => line.replace(/\d+ ms/, 'n ms'))
    assert.deepEqual(shown, [
      '::group::one: this; that (n ms)',
      'a',
      '::endgroup::',
      '::group::two (n ms)',
      '::endgroup::',
      'b',
    ])
  })

  it('knows the duration of each group that has ended', () => {
    const log = createRunnerLog(text => text)
    capturedOutput(() => {
      log.group('one')
      log.did('this')
      log.group('two')
    })
    assert.deepEqual([...log.took.keys()], ['one'])
    capturedOutput(() => log.end())
    assert.deepEqual([...log.took.keys()], ['one', 'two'])
  })

  it('shows no work that was done outside a group', () => {
    const lines = written(log => {
      log.did('early')
      log.group('one')
      log.end()
      log.did('late')
    })
    assert.deepEqual(
      lines.map(line => line.replace(/\d+ ms/, 'n ms')),
      ['::group::one (n ms)', '::endgroup::'],
    )
  })

  it('shows the lines of a slow group as they come, and then its result', t => {
    t.mock.timers.enable({ apis: ['setTimeout'] })
    const lines = written(log => {
      log.group('slow')
      log.info('a')
      t.mock.timers.tick(1000)
      process.stdout.write('(later)\n')
      log.info('b')
      log.did('this')
      log.end()
    })
    const shown = lines.map(line => line.replace(/\d+ ms/, 'n ms'))
    assert.deepEqual(shown, ['::group::slow', 'a', '(later)', 'b', '::endgroup::', 'slow: this (n ms)'])
  })

  it('says every ten seconds that a group is still running if it writes nothing, and later every minute', t => {
    t.mock.timers.enable({ apis: ['setTimeout'] })
    let now = 0
    t.mock.method(process, 'hrtime', () => [now, 0])
    const pass = (seconds: number): void => {
      for (let second = 0; second < seconds; second++) {
        now += 1
        t.mock.timers.tick(1000)
      }
    }
    const lines = written(log => {
      log.group('healthchecking')
      pass(8)
      log.info('a')
      pass(9)
      log.info('b')
      pass(200)
      log.end()
      pass(60)
      log.group('notifying', 'at once')
      pass(11)
    })
    assert.deepEqual(lines, [
      '::group::healthchecking',
      'a',
      'b',
      ...['27 s', '37 s', '47 s', '57 s', '1 min 7 s', '2 min 7 s', '3 min 7 s'].map(
        time => `healthchecking: still running after ${time}`,
      ),
      '::endgroup::',
      'healthchecking (3 min 37 s)',
      '::group::notifying',
      'notifying: still running after 10 s',
    ])
  })

  it('shows at once the lines of a group that changes the host, because a kill must not lose them', () => {
    const lines = written(log => {
      log.group('fetching')
      log.info('a')
      log.group('installing', 'at once')
      process.stdout.write('(opened)\n')
      log.info('b')
      process.stdout.write('(killed)\n')
    })
    const shown = lines.map(line => line.replace(/\d+ ms/, 'n ms'))
    assert.deepEqual(shown, [
      '::group::fetching (n ms)',
      'a',
      '::endgroup::',
      '::group::installing',
      '(opened)',
      'b',
      '(killed)',
    ])
  })

  it('keeps notices and warnings for the summary, redacted and without repetition', () => {
    const log = createRunnerLog(text => text.replaceAll('hunter22', '***'))
    capturedOutput(() => {
      log.warning('a hunter22')
      log.notice('b')
      log.notice('b')
      log.info('c')
    })
    assert.deepEqual(log.notes, [
      { level: 'warning', text: 'a ***' },
      { level: 'notice', text: 'b' },
    ])
  })

  for (const level of ['info', 'notice', 'warning'] as const) {
    it(`writes ${level} text as one redacted line without foreign commands`, () => {
      const [line, ...rest] = written(log => log[level]('a hunter22\r\n::error::b ##[error]c \u001b[31m'))
      assert.deepEqual(rest, [])
      assert.ok(line?.endsWith('a *** ::error::b #·#[error]c'), line)
    })
  }

  it('writes a title without foreign commands', () => {
    const [line] = written(log => {
      log.group('a hunter22\r\n::error::b ##[error]c')
      log.did('::error::d')
      log.end()
    })
    assert.ok(line?.startsWith('::group::a *** ::error::b #·#[error]c: ::error::d ('), line)
  })
})
