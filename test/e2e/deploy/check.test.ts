import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import {
  appendFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { after, afterEach, before, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { openJournal } from '../../../src/install/journal/journal.ts'
import { whyLeftToCi } from '../../extent.ts'
import { acceptedReports } from '../harness/evidence.ts'
import { assertNoSecret } from '../harness/refusal.ts'
import { type HostStage, openHostStage, planWith, versionFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const HOST_CONFIG = 'version: 1\nsupervisor: systemd\n'
const PLAN = planWith(
  'action: restart, plugin: greeter',
  'action: healthcheck, plugin: greeter, timeout: 2s',
  'action: provision, plugin: greeter',
)

let stage: HostStage
let pin: Record<string, string>
before(async () => {
  stage = await openHostStage()
})
after(() => stage.close())
beforeEach(async () => {
  if (pin === undefined) await stage.publish('1.0.0', versionFiles('1.0.0'))
  const provision = stage.standIns.add('make-db', '')
  stage.writeHostConfig(`${HOST_CONFIG}provision: {greeter: {command: [${provision}]}}\n`)
  stage.writePlan(PLAN)
  const { exitCode, log, outputs } = await stage.deployHere({ version: '1.0.0' })
  assert.equal(exitCode, 0, log)
  stage.standIns.setState('greeter.service', 'active')
  pin = { version: '1.0.0', 'artifact-sha256': outputs['artifact-sha256'] ?? '' }
})

/** Every path below the project root, with its inode, mode, size and times. */
function listUntouched(): string[] {
  const paths = ['.', ...readdirSync(stage.root, { recursive: true, encoding: 'utf8' })].sort()
  return paths.map(path => {
    const { ino, mode, size, mtimeMs, ctimeMs } = lstatSync(join(stage.root, path))
    return [path, ino, mode, size, mtimeMs, ctimeMs].join(' ')
  })
}

/** Runs a check, which must neither touch the host or its services nor report to the hub. */
async function check(inputs: Record<string, string> = {}): Promise<ActionResult> {
  const known = [listUntouched(), stage.standIns.changes(), acceptedReports(stage)]
  const result = await stage.deployHere({ 'check-only': 'true', ...pin, ...inputs })
  assert.deepEqual([listUntouched(), stage.standIns.changes(), acceptedReports(stage)], known)
  const { changed, reported, 'report-path': path } = result.outputs
  assert.deepEqual([changed, reported, path], ['false', 'false', ''])
  assertNoSecret(stage, result)
  return result
}

async function assertFails(code: string, inputs: Record<string, string> = {}): Promise<ActionResult> {
  const result = await check(inputs)
  const { outcome, 'error-code': found } = result.outputs
  assert.deepEqual([result.exitCode, outcome, found], [1, 'failed', code], result.log)
  return result
}

describe('a check of the installed version', () => {
  it('runs the health checks of the plan and no other step, and contacts no hub', { skip: ONLY_IN_CI }, async () => {
    const away = 'http://127.0.0.1:1'
    const { exitCode, outputs, log, summary } = await check({ 'hub-url': away })
    const { outcome, version, 'previous-version': before, 'running-version': running, state } = outputs
    assert.deepEqual([exitCode, outcome, state], [0, 'success', 'succeeded'], log)
    assert.deepEqual([version, before, running], ['1.0.0', '1.0.0', '1.0.0'])
    assert.match(summary, /^### 🩺 greeter 1\.0\.0 on \S+ is healthy; nothing was changed\n/)
    assert.deepEqual(
      ['installing', 'fetching', 'make-db'].filter(word => summary.includes(word)),
      [],
    )
  })

  it('does not say that a service is healthy if this host cannot check it', async () => {
    stage.writeHostConfig('version: 1\nsupervisor: none\n')
    stage.writePlan(planWith())
    const { exitCode, outputs, summary, log } = await check()
    assert.deepEqual([exitCode, outputs['outcome']], [0, 'success'], log)
    assert.match(summary, /^### ⚠️ greeter 1\.0\.0 on \S+ is installed and intact; no health check ran\n/)
    assert.doesNotMatch(summary, /healthy/)
  })

  it('says that a service that is not running is unhealthy, and does not start that service', {
    skip: ONLY_IN_CI,
  }, async () => {
    stage.standIns.setState('greeter.service', 'inactive')
    const { outputs } = await assertFails('unhealthy')
    assert.equal(outputs['failed-step'], 's2')
    assert.equal(stage.standIns.stateOf('greeter.service'), 'inactive')
  })

  it('fails without a change when another version is installed, and does not check its health', {
    skip: ONLY_IN_CI,
  }, async () => {
    await stage.publish('2.0.0', versionFiles('2.0.0'))
    assert.equal((await stage.deployHere({ version: '2.0.0' })).exitCode, 0)
    stage.standIns.setState('greeter.service', 'inactive')
    const { log } = await assertFails('not_installed')
    assert.match(log, /should have version 1\.0\.0 .*plugins\/greeter is greeter 2\.0\.0/)
  })

  it('fails when the version has bytes other than the pinned ones', { skip: ONLY_IN_CI }, async () => {
    await assertFails('not_installed', { 'artifact-sha256': 'ab'.repeat(32) })
  })

  it('fails when another slug has installed these bytes, and when no version is installed', {
    skip: ONLY_IN_CI,
  }, async () => {
    const root = join(stage.folder, 'empty')
    mkdirSync(root, { recursive: true })
    await assertFails('not_installed', { 'project-root': root })
    assert.deepEqual(readdirSync(root), [])
    const file = join(stage.root, '.hub-deploy/installed.json')
    const own = readFileSync(file, 'utf8')
    writeFileSync(file, own.replace('"slug": "greeter"', '"slug": "other"'))
    assert.notEqual(readFileSync(file, 'utf8'), own)
    await assertFails('not_installed')
    writeFileSync(file, own)
  })

  it('fails when the record does not say which version or bytes are installed', async t => {
    const file = join(stage.root, '.hub-deploy/installed.json')
    const own = readFileSync(file, 'utf8')
    t.after(() => writeFileSync(file, own))
    const { installed, ...record } = JSON.parse(own)
    const unknown = installed.map((row: object) => ({ ...row, version: null, artifact_sha256: null }))
    writeFileSync(file, JSON.stringify({ ...record, installed: unknown }))
    const { log } = await assertFails('not_installed')
    assert.match(log, /plugins\/greeter is greeter of an unknown version \(sha256 unknown\): /)
  })

  it('fails when a file was changed on the host', async () => {
    appendFileSync(join(stage.root, 'plugins/greeter/plugin.yaml'), '# changed\n')
    const { log } = await assertFails('not_installed')
    assert.match(log, /missing or changed/)
  })

  describe('of a host with an interrupted deployment', { skip: ONLY_IN_CI }, () => {
    const journal = () => join(stage.root, '.hub-deploy/journal.jsonl')
    beforeEach(async () => {
      await stage.publish('2.0.0', versionFiles('2.0.0'), { replace: true })
      stage.standIns.add('make-db', 'kill -KILL $PPID')
      assert.equal((await stage.deployHere({ version: '2.0.0' })).signal, 'SIGKILL')
      stage.standIns.add('make-db', '')
    })
    afterEach(async () => {
      if (existsSync(journal())) assert.equal((await stage.deployHere(pin)).exitCode, 0)
    })
    const assertInconsistent = async () => {
      const { exitCode, outputs, log } = await check()
      assert.deepEqual([exitCode, outputs['outcome'], outputs['error-code']], [1, 'inconsistent', 'inconsistent'], log)
      assert.equal(outputs['running-version'], '')
    }

    it('fails with locked while the host is waiting for its recovery', async () => {
      await assertFails('locked')
    })

    it('calls the host inconsistent if the recovery has failed', async () => {
      const snapshots = join(stage.root, '.hub-deploy/snapshots/plugins/greeter')
      const name =
        readdirSync(snapshots)
          .toSorted((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10))
          .at(-1) ?? ''
      renameSync(join(snapshots, name), join(stage.root, 'elsewhere'))
      const { outputs, log } = await stage.deployHere()
      assert.equal(outputs['outcome'], 'inconsistent', log)
      await assertInconsistent()
      renameSync(join(stage.root, 'elsewhere'), join(snapshots, name))
    })

    it('calls the host inconsistent, as a deployment does, if the recovery was given up', async () => {
      const known = readFileSync(journal())
      const opened = openJournal(journal(), text => text)
      for (let run = 1; run <= 5; run++)
        await opened.append({ record: 'recovery', at: new Date().toISOString(), by: randomUUID() })
      opened.close()
      await assertInconsistent()
      writeFileSync(journal(), known)
    })

    it('calls the host inconsistent, as a deployment does, if the journal is damaged', async () => {
      const known = readFileSync(journal())
      writeFileSync(journal(), '')
      await assertInconsistent()
      writeFileSync(journal(), known)
    })
  })

  it('does not say that a version is unhealthy if another run has replaced that version in the meantime', {
    skip: ONLY_IN_CI,
  }, async t => {
    const file = join(stage.root, '.hub-deploy/installed.json')
    const own = readFileSync(file, 'utf8')
    t.after(() => writeFileSync(file, own))
    const replace = stage.standIns.add('replace', `sed -i 's/"slug": "greeter"/"slug": "other"/' ${file}; exit 1`)
    stage.writeHostConfig(`${HOST_CONFIG}plugins: {greeter: {healthcheck: {command: [${replace}]}}}\n`)
    stage.writePlan(planWith('action: healthcheck, plugin: greeter, timeout: 2s'))
    const { exitCode, outputs, log } = await stage.deployHere({ 'check-only': 'true', ...pin })
    assert.deepEqual([exitCode, outputs['outcome'], outputs['error-code']], [1, 'failed', 'not_installed'], log)
  })

  it('requires a version and the digest of its bytes, and refuses the inputs of a deployment', async () => {
    for (const inputs of [
      { version: 'latest' },
      { 'artifact-sha256': '' },
      { redeploy: 'true' },
      { 'dry-run': 'true' },
    ])
      await assertFails('invalid_input', inputs as Record<string, string>)
  })
})
