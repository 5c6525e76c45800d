import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { sampled } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import { acceptedReports, commandsIn, listHost, listOwn, readLocalReport } from '../harness/evidence.ts'
import { openStage, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'
import { serveUntrustedHub } from '../harness/untrusted-hub.ts'

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
})
afterEach(() => stage.close())

/** The records of the only run's GITHUB_OUTPUT file, in the order in which they were written. */
function outputRecords(): [string, string][] {
  const [folder] = readdirSync(stage.workspace.temp).filter(name => name.startsWith('commands-'))
  const text = readFileSync(join(stage.workspace.temp, folder ?? '', 'output'), 'utf8')
  const records = [...text.matchAll(/([\w-]+)<<(\S+)\n([\s\S]*?)\n\2\n/g)]
  assert.equal(records.map(([record]) => record).join(''), text)
  return records.map(([, name, , value]) => [name as string, value as string])
}

describe('the outputs of a run', () => {
  it('say that the run was interrupted until it has ended', async () => {
    const { outputs } = await stage.deploy()
    const records = outputRecords()
    const outcomes = records.flatMap(([name, value]) => (name === 'outcome' ? [value] : []))
    assert.deepEqual(outcomes, ['interrupted', 'success'])
    assert.deepEqual(Object.fromEntries(records), outputs)
    for (const name of Object.keys(outputs)) {
      const values = records.flatMap(([recordName, value]) => (recordName === name ? [value] : []))
      assert.ok(values.length > 0, name)
      assert.ok(
        values.every((value, index) => value !== values[index - 1]),
        `the output ${name} must change with each record, but has the values ${values}`,
      )
    }
  })

  it('never say interrupted if the run is refused before it begins on the host', async () => {
    await stage.deploy({ 'hub-url': '' })
    assert.deepEqual(
      outputRecords().filter(([name]) => name === 'outcome'),
      [['outcome', 'failed']],
    )
  })
})

describe('the environment of a run', () => {
  const runner = [
    'CI',
    'GITHUB_ACTIONS',
    'GITHUB_ACTOR',
    'GITHUB_JOB',
    'GITHUB_OUTPUT',
    'GITHUB_REPOSITORY',
    'GITHUB_RUN_ATTEMPT',
    'GITHUB_RUN_ID',
    'GITHUB_SERVER_URL',
    'GITHUB_STATE',
    'GITHUB_STEP_SUMMARY',
    'GITHUB_WORKFLOW',
    'GITHUB_WORKSPACE',
    'RUNNER_TRACKING_ID',
  ]

  it('may lack every variable that a runner sets', async () => {
    const result = await stage.deploy({}, { env: Object.fromEntries(runner.map(name => [name, undefined])) })
    assert.equal(result.exitCode, 0, result.log)
    const [path] = listOwn(stage, 'reports')
    const { run } = JSON.parse(readFileSync(join(stage.root, '.hub-deploy/reports', path ?? ''), 'utf8'))
    const nothing = { workflow: null, run_id: null, run_attempt: null, job: null, actor: null, url: null }
    assert.deepEqual(run, nothing)
  })

  it('may lack RUNNER_TEMP; the run then uses the temporary folder of the system and leaves it clean', async () => {
    const temporary = join(stage.workspace.path, 'tmp')
    mkdirSync(temporary)
    const result = await stage.deploy({}, { env: { RUNNER_TEMP: undefined, TMPDIR: temporary } })
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual(readdirSync(temporary), [])
  })

  it('may name a RUNNER_TEMP that does not exist: the run fails with host_not_writable before it changes anything', async () => {
    const missing = join(stage.workspace.path, 'gone/temp')
    const result = await stage.deploy({ redeploy: 'true' }, { env: { RUNNER_TEMP: missing } })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'host_not_writable'], result.log)
    assert.match(result.log, /RUNNER_TEMP/)
    assert.equal(existsSync(join(stage.root, 'plugins')), false)
  })

  it('passes no inputs, tokens or job name on to a child', async () => {
    const bin = join(stage.workspace.path, 'bin')
    const seen = join(stage.workspace.path, 'seen')
    mkdirSync(bin)
    writeFileSync(join(bin, 'sync'), `#!/bin/sh\nenv > ${seen}\nexec /bin/sync "$@"\n`)
    chmodSync(join(bin, 'sync'), 0o755)
    const secrets = { GITHUB_TOKEN: 'a-token', ACTIONS_RUNTIME_TOKEN: 'a-token', AWS_SECRET_ACCESS_KEY: 'a-token' }
    const result = await stage.deploy({}, { env: { PATH: `${bin}:${process.env['PATH']}`, ...secrets } })
    assert.equal(result.exitCode, 0, result.log)
    const environment = readFileSync(seen, 'utf8')
    assert.match(environment, /^PATH=/m)
    assert.doesNotMatch(environment, /INPUT_|GITHUB_|ACTIONS_|RUNNER_|a-token/)
    assert.ok(!environment.includes(stage.apiKey))
  })

  it('may name a summary that cannot be written: the run warns, and its outcome does not change', async () => {
    const result = await stage.deploy({}, { env: { GITHUB_STEP_SUMMARY: join(stage.root, 'no/such/file') } })
    assert.deepEqual([result.exitCode, result.outputs['outcome']], [0, 'success'], result.log)
    assert.equal(commandsIn(result.log, 'warning').length, 1)
    const refused = await stage.deploy(
      { version: '9.9.9' },
      { env: { GITHUB_STEP_SUMMARY: join(stage.root, 'no/such/file') } },
    )
    assert.deepEqual([refused.exitCode, commandsIn(refused.log, 'error').length], [1, 1], refused.log)
  })

  for (const name of sampled(['GITHUB_OUTPUT', 'GITHUB_STATE'], 1)) {
    it(`may name a ${name} that does not exist: the run warns, and its outcome does not change`, async () => {
      const result = await stage.deploy({}, { env: { [name]: join(stage.root, 'no/such/file') } })
      assert.equal(result.exitCode, 0, result.log)
      assert.ok(commandsIn(result.log, 'warning').length > 0)
      assert.equal(commandsIn(result.log, 'error').length, 0)
      const refused = await stage.deploy({ slug: '' }, { env: { [name]: join(stage.root, 'no/such/file') } })
      assert.deepEqual([refused.exitCode, commandsIn(refused.log, 'error').length], [1, 1], refused.log)
    })
  }

  const LEFT = {
    'a damaged journal': ['journal.jsonl', 'no journal\n{}\n'],
    'a journal that is a folder': ['journal.jsonl/x', ''],
  }
  for (const [what, [path = '', text = '']] of sampled(Object.entries(LEFT), 1)) {
    it(`causes one error without a stack in a post step that meets ${what}`, async () => {
      assert.equal((await stage.deploy()).exitCode, 0)
      writeFiles(join(stage.root, '.hub-deploy'), { [path]: text })
      const { exitCode, log } = await stage.deploy({}, { phase: 'post', state: { 'deployment-id': randomUUID() } })
      assert.deepEqual([exitCode, commandsIn(log, 'error').length], [1, 1], log)
      assert.doesNotMatch(log, /^\s+at .+:\d+:\d+/m)
    })
  }

  for (const umask of sampled([0o077, 0o000], 1)) {
    it(`affects no file mode with a umask of ${umask.toString(8)}`, async () => {
      const usual = process.umask(umask)
      try {
        assert.equal((await stage.deploy()).exitCode, 0)
      } finally {
        process.umask(usual)
      }
      const modes = Object.entries(listTree(stage.root)).map(([path, what]) => [path, what.split(' ')[0]])
      const modeOf = Object.fromEntries(modes)
      assert.deepEqual(
        ['plugins', 'plugins/greeter', 'plugins/greeter/src', 'plugins/greeter/plugin.yaml'].map(path => modeOf[path]),
        ['755', '755', '755', '644'],
      )
      for (const [path, mode] of modes.filter(([path]) => path?.startsWith('.hub-deploy')))
        assert.match(mode ?? '', /^[67]00$/, path)
    })
  }
})

describe('a run that is cancelled', () => {
  it('changes nothing, says so and leaves nothing behind', async t => {
    let pid = 0
    const hub = await serveUntrustedHub(t, { artifact: () => process.kill(pid, 'SIGINT') })
    const inputs = { 'hub-url': hub.url, 'deployments-url': stage.hub.url }
    const result = await stage.deploy(inputs, {
      onStart: started => {
        pid = started
      },
    })
    const { outputs } = result
    assert.deepEqual(
      [result.exitCode, outputs['outcome'], outputs['error-code']],
      [1, 'failed', 'cancelled'],
      result.log,
    )
    assert.equal(commandsIn(result.log, 'error').length, 1)
    assert.deepEqual(listHost(stage.root), {})
    assert.equal(acceptedReports(stage).at(-1)?.status, 'failed')
  })
})

describe('a run', () => {
  it('that is killed has set its outcome to interrupted, and its post step finishes the run', async t => {
    let pid = 0
    const hub = await serveUntrustedHub(t, { artifact: () => process.kill(pid, 'SIGKILL') })
    const inputs = { 'hub-url': hub.url, 'deployments-url': stage.hub.url }
    const onStart = (started: number): void => {
      pid = started
    }
    const killed = await stage.deploy(inputs, { onStart })
    assert.deepEqual([killed.signal, killed.outputs['outcome']], ['SIGKILL', 'interrupted'])
    const post = await stage.deploy(inputs, { phase: 'post', state: killed.state })
    assert.deepEqual([post.exitCode, post.outputs], [0, {}], post.log)
    assert.deepEqual(listHost(stage.root), {})
    const [row] = acceptedReports(stage)
    // No artifact arrived, so the run does not know which version the hub serves as `latest`.
    assert.deepEqual([row?.status, row?.version], ['failed', 'latest'])
    const [path] = listOwn(stage, 'reports')
    const report = JSON.parse(readFileSync(join(stage.root, '.hub-deploy/reports', path ?? ''), 'utf8'))
    assert.deepEqual([report.deployment_id, report.outcome], [killed.outputs['deployment-id'], 'failed'])
    assert.equal(report.error.code, 'interrupted')
  })

  it('that ended by itself leaves nothing for its post step to do', async () => {
    const main = await stage.deploy()
    const before = [listHost(stage.root), acceptedReports(stage)]
    const post = await stage.deploy({}, { phase: 'post', state: main.state })
    assert.equal(post.exitCode, 0, post.log)
    assert.deepEqual([listHost(stage.root), acceptedReports(stage)], before)
    assert.equal(readLocalReport(main).outcome, 'success')
    assert.ok(existsSync(join(stage.root, 'plugins/greeter')))
  })
})
