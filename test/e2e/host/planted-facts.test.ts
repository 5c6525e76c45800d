import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { journalText } from '../../install/journal/journal-text.ts'
import { openSafeFolder, runRecover, writeSafeHostConfig } from '../harness/processes.ts'
import {
  type HostStage,
  openRunningHost,
  PROVISION,
  planWith,
  RESTART,
  runningHostConfig,
  unitChanges,
} from '../harness/stage.ts'

const safe = openSafeFolder()

let stage: HostStage
let journal: string
/** Exists once a planted command was executed. */
let proof: string
/** The saved state of a run that was killed in the middle, for its post step. */
let state: Record<string, string>

type Line = Record<string, unknown>

/** A host with the journal of a killed run. A service that can write only below the root then changes that journal. */
beforeEach(async () => {
  stage = await openRunningHost()
  journal = join(stage.root, '.hub-deploy/journal.jsonl')
  proof = join(stage.folder, 'executed')
  stage.standIns.add('make-db', 'kill -9 $PPID; exit 1')
  stage.writePlan(planWith(RESTART, PROVISION))
  const dead = await stage.deployHere()
  assert.equal(dead.signal, 'SIGKILL', dead.log)
  state = dead.state
})
afterEach(() => stage.close())

/** Writes the journal again, with valid checksums, as any process can that may write there. */
function plant(change: (lines: Line[]) => Line[]): void {
  const lines = readFileSync(journal, 'utf8').trimEnd().split('\n')
  const records = lines.map(line => JSON.parse(line) as Line).map(({ seq: _, sum: __, ...record }) => record)
  writeFileSync(journal, journalText(change(records)))
}

/** A record after the last announced one, with which the earlier versions of this action would have been satisfied. */
const appended = (record: Line) => (lines: Line[]) => [...lines, record]

const COMMAND = ['/bin/sh', '-c', 'touch executed']
const UNIT = { supervisor: 'systemd', scope: 'system', unit: 'sshd.service' }
const CHECK = {
  id: 'greeter',
  service: null,
  check: { probe: { type: 'command', command: COMMAND }, intervalSeconds: 1, stableForSeconds: 0 },
  timeout_seconds: 5,
  retries: 0,
  previous_version: '1.0.0',
}

const planted: Record<string, (lines: Line[]) => Line[]> = {
  'a health check with a command': appended({ record: 'healthchecks', checks: [CHECK] }),
  'the unit of another service': appended({
    record: 'service',
    change: { service: UNIT, action: 'restart', was_running: true, replicas: null },
  }),
  'a service with its own kubeconfig': appended({
    record: 'service',
    part: 'greeter',
    was_running: true,
    kubeconfig: '/tmp/kubeconfig',
  }),
  'a service of a part that is not installed': appended({ record: 'service', part: 'sshd', was_running: true }),
  'a service that was not running, of a part that is not installed': appended({
    record: 'service',
    part: 'sshd',
    was_running: false,
  }),
}

const recoveries: Record<string, () => Promise<void>> = {
  'the next run': async () => void (await stage.deployHere({ version: '1.0.0' })),
  'the post step': async () => void (await stage.deployHere({}, { phase: 'post', state })),
  'recover.js': async () => {
    const config = writeSafeHostConfig(safe, runningHostConfig(stage))
    runRecover(['--project-root', stage.root, '--host-config', config], stage.standIns.path)
  },
}

describe('a journal in which a confined service has planted', () => {
  for (const [what, change] of Object.entries(planted)) {
    for (const [who, recover] of Object.entries(recoveries)) {
      it(`${what} makes ${who} execute nothing, and touch no other service`, async () => {
        plant(change)
        stage.writePlan(planWith())
        await recover()
        assert.equal(existsSync(proof), false)
        const calls = stage.standIns.calls().map(call => call.join(' '))
        assert.deepEqual(
          calls.filter(call => /sshd|kubectl|touch/.test(call)),
          [],
        )
      })
    }
  }

  it('the service of a recorded part at most has this service restarted and checked', async () => {
    plant(lines => [...lines, { record: 'service', part: 'greeter', was_running: true }])
    const before = unitChanges(stage).length
    const result = await stage.deployHere({}, { phase: 'post', state })
    assert.match(result.log, /greeter is healthy again/)
    assert.deepEqual(unitChanges(stage).slice(before), ['restart greeter.service'])
  })
})

describe('a record of what is installed in which a confined service has planted', () => {
  it('a list of services to restore and a pending service has at most that service restarted and checked', async () => {
    await stage.deployHere({}, { phase: 'post', state })
    const path = join(stage.root, '.hub-deploy/installed.json')
    const file = JSON.parse(readFileSync(path, 'utf8'))
    const row = { ...file.installed[0], service_pending: true, command: COMMAND, service: UNIT }
    writeFileSync(path, JSON.stringify({ ...file, installed: [row], unrestored: [JSON.stringify(UNIT)] }))
    stage.writePlan(planWith())
    const before = unitChanges(stage).length
    const { outputs, log } = await stage.deployHere({ version: '1.0.0' })
    assert.equal(outputs['outcome'], 'success', log)
    assert.deepEqual(unitChanges(stage).slice(before), ['restart greeter.service'])
    assert.doesNotMatch(readFileSync(path, 'utf8'), /sshd|touch|service_pending/)
  })
})

describe('a recovery', () => {
  it('uses the host config of its own run', async () => {
    stage.writeHostConfig(runningHostConfig(stage).replace('greeter: {', 'greeter: {unit: other.service, '))
    stage.standIns.setState('other.service', 'active')
    const before = unitChanges(stage).length
    await stage.deployHere({}, { phase: 'post', state })
    assert.deepEqual(unitChanges(stage).slice(before), ['restart other.service'])
  })

  it('in a post step whose host config is gone restores the files, and names the service', async () => {
    const before = unitChanges(stage).length
    const { log } = await stage.deployHere({ 'host-config': 'gone.yaml' }, { phase: 'post', state })
    assert.match(log, /The service of greeter was not restarted and not checked, because there is no host config/)
    assert.deepEqual(unitChanges(stage).slice(before), [])
    const { installed } = JSON.parse(readFileSync(join(stage.root, '.hub-deploy/installed.json'), 'utf8'))
    assert.deepEqual([installed[0].version, installed[0].service_pending], ['1.0.0', true])
    assert.equal(readFileSync(join(stage.root, 'plugins/greeter/src/main.py'), 'utf8'), '1.0.0')
  })
})
