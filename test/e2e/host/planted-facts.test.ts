import assert from 'node:assert/strict'
import { existsSync, lstatSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, afterEach, before, beforeEach, describe, it } from 'node:test'
import { changeSchema } from '../../../src/install/changes/change.ts'
import { installedRowSchema } from '../../../src/install/host/rows.ts'
import { type JournalRecord, recordSchema } from '../../../src/install/journal/records.ts'
import { byExtent, sampled, whyLeftToCi } from '../../extent.ts'
import { journalText } from '../../install/journal/journal-text.ts'
import { DEPLOYMENT_ID, factsOf, reportOf, rowOf, snapshotOf } from '../../install/prepared-host.ts'
import {
  ACTORS,
  type Actor,
  type ConfinedHost,
  openConfinedHost,
  whyNoConfinement,
} from '../harness/confined-service.ts'
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

const ONLY_IN_CI = whyLeftToCi()

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
  for (const [what, change] of sampled(Object.entries(planted), 2)) {
    for (const [who, recover] of sampled(Object.entries(recoveries), 2)) {
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

  it('the service of a recorded part at most has this service restarted and checked', {
    skip: ONLY_IN_CI,
  }, async () => {
    plant(lines => [...lines, { record: 'service', part: 'greeter', was_running: true }])
    const before = unitChanges(stage).length
    const result = await stage.deployHere({}, { phase: 'post', state })
    assert.match(result.log, /greeter is healthy again/)
    assert.deepEqual(unitChanges(stage).slice(before), ['restart greeter.service'])
  })
})

describe('a record of what is installed in which a confined service has planted', () => {
  it('a list of services to restore and a pending service has at most that service restarted and checked', {
    skip: ONLY_IN_CI,
  }, async () => {
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
  it('uses the host config of its own run', { skip: ONLY_IN_CI }, async () => {
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

describe('a recovery with a host config whose template is only the id', () => {
  const BARE = 'version: 1\nsupervisor: systemd\n'
  const withTemplate = (unit: string): string => `${BARE}systemd: {unit: "${unit}"}\n`
  const recover = (config: string) =>
    runRecover(['--project-root', stage.root, '--host-config', writeSafeHostConfig(safe, config)], stage.standIns.path)
  const pendingIds = (): string[] => {
    const { installed } = JSON.parse(readFileSync(join(stage.root, '.hub-deploy/installed.json'), 'utf8'))
    return installed.flatMap((row: Line) => (row['service_pending'] === true ? [row['id']] : []))
  }
  const changesOf = async (act: () => unknown): Promise<string[]> => {
    const before = unitChanges(stage).length
    await act()
    return unitChanges(stage).slice(before)
  }

  beforeEach(() => {
    stage.writeHostConfig(BARE)
    stage.writePlan(planWith())
  })

  it('restarts the service of the id that this run names', { skip: ONLY_IN_CI }, async () => {
    assert.deepEqual(await changesOf(recoveries['the post step'] as () => unknown), ['restart greeter.service'])
    assert.deepEqual(pendingIds(), [])
  })

  it('names the service without that, and leaves it to the next run that names the id', {
    skip: ONLY_IN_CI,
  }, async () => {
    const done = recover(BARE)
    assert.equal(done.status, 0, done.stderr)
    assert.match(done.stderr, /service of greeter was not restarted.*the host config has no row for it/)
    assert.deepEqual([unitChanges(stage).slice(-1), pendingIds()], [['restart greeter.service'], ['greeter']])
    assert.match(recover(BARE).stderr, /greeter still has to be restarted/)
    const next = recoveries['the next run'] as () => unknown
    assert.deepEqual([await changesOf(next), pendingIds()], [['restart greeter.service'], []])
  })

  it('restarts the service if the template has a name of its own', { skip: ONLY_IN_CI }, async () => {
    stage.standIns.setState('app-greeter.service', 'active')
    assert.deepEqual(await changesOf(() => recover(withTemplate('app-{id}.service'))), ['restart app-greeter.service'])
  })

  for (const [who, act] of sampled(Object.entries({ ...recoveries, 'recover.js': () => recover(BARE) }), 1))
    it(`touches no service of the machine whose id was planted, whatever ${who} finds`, async () => {
      const [ino, times] = ['7', '1 1']
      const to = '.hub-deploy/snapshots/plugins/sshd/1-1.0.0'
      plant(lines => [
        ...lines,
        { record: 'change', change: { type: 'move', from: 'plugins/sshd', to, ino, times } },
        { record: 'service', part: 'sshd', was_running: true },
        { record: 'undone', of: lines.length + 1, was_made: false },
      ])
      const path = join(stage.root, '.hub-deploy/installed.json')
      const file = JSON.parse(readFileSync(path, 'utf8'))
      const cron = { ...rowOf({ slug: 'cron', id: 'cron' }), service_pending: true }
      const pending_services = [{ part: 'atd', was_running: false }]
      const atd = { ...cron, slug: 'atd', id: 'atd', pending_services }
      writeFileSync(path, JSON.stringify({ ...file, installed: [...file.installed, cron, atd] }))
      for (const unit of ['sshd', 'cron', 'atd']) stage.standIns.setState(`${unit}.service`, 'active')
      await act()
      assert.ok(!existsSync(journal))
      assert.deepEqual(
        stage.standIns.calls().filter(call => /sshd|cron|atd/.test(call.join())),
        [],
      )
    })
})

type Plant = (host: ConfinedHost) => void

const at = '2026-01-02T03:04:07.000Z'
const EVIL = '$(trap); `trap`; trap'
const OWN_STAGING = `.hub-deploy/staging/${DEPLOYMENT_ID}`
const sshd = rowOf({ slug: 'sshd', id: 'sshd' })
/** Values that a careless reader would look up, follow, contact or execute. */
const HOSTILE = [
  '__proto__',
  'constructor',
  '../../../outside/home',
  '/etc/passwd',
  EVIL,
  ['trap'],
  { unit: 'sshd' },
  1e99,
]

/** Identifies a file for a planted change, as a run would have identified it. */
function identityOf(host: ConfinedHost, path: string): { ino: string; times: string } {
  const { ino, mtimeNs, birthtimeNs } = lstatSync(join(host.root, path), { bigint: true })
  return { ino: String(ino), times: `${mtimeNs} ${birthtimeNs}` }
}

/** Changes whose undo would leave the root. Each first plants the symlink by which it would. */
const changes: Record<string, (host: ConfinedHost) => object> = {
  move(host) {
    const to = '.hub-deploy/snapshots/plugins/authorized_keys/1-1.0.0'
    host.plant(`ln -sfn ${host.outside}/home home; mkdir -p $(dirname ${to}); echo mine > ${to}`)
    return { type: 'move', from: 'home/.ssh/authorized_keys', to, ...identityOf(host, to) }
  },
  make_directory(host) {
    host.plant(`ln -sfn ${host.outside} away`)
    return { type: 'make_directory', path: 'away/empty' }
  },
  create_file(host) {
    host.plant(
      `mkdir -p ${OWN_STAGING}; ln -sfn ${host.outside}/home ${OWN_STAGING}/link; echo mine > plugins/evil.env`,
    )
    const { ino } = identityOf(host, 'plugins/evil.env')
    return { type: 'create_file', staged: `${OWN_STAGING}/link/.ssh/authorized_keys`, path: 'plugins/evil.env', ino }
  },
}

const otherChanges: typeof changes = {
  'a move into a staging folder that is a symlink'(host) {
    host.plant(`ln -sfn ${host.outside}/home ${OWN_STAGING}; mkdir -p plugins/evil`)
    return { type: 'move', from: `${OWN_STAGING}/evil`, to: 'plugins/evil', ...identityOf(host, 'plugins/evil') }
  },
  'a move into a shelf that is a symlink'(host) {
    const to = '.hub-deploy/snapshots/extensions/user/1-1.0.0'
    host.plant(`ln -sfn ${host.outside}/units extensions; mkdir -p ${to}; echo mine > ${to}/evil.service`)
    return { type: 'move', from: 'extensions/user', to, ...identityOf(host, to) }
  },
  'settings in a part that is a symlink'(host) {
    host.plant(`ln -sfn ${host.outside}/greeter plugins/evil; mkdir -p ${OWN_STAGING}/a`)
    const { ino } = identityOf(host, 'plugins/evil/.env')
    return { type: 'create_file', staged: `${OWN_STAGING}/a/.env`, path: 'plugins/evil/.env', ino }
  },
}

const ended = (more: object): object => ({
  outcome: 'inconsistent',
  changed: true,
  completed_at: at,
  error: { code: 'rollback_failed', message: EVIL, step: '__proto__' },
  rollback: { restored: false, problems: [EVIL], verified: false, healthy: false },
  ...more,
})

/** What a journal contains after its first record. */
const records: Record<JournalRecord['record'], (host: ConfinedHost) => object[]> = {
  begin: () => [],
  facts: () => [{ record: 'facts', facts: { slug: 'sshd', id: 'sshd', directory: 'home', repo: EVIL } }],
  state: () => ['__proto__', 'constructor', 'valueof'].map(state => ({ record: 'state', state, at })),
  step: () => [
    { record: 'step', id: '__proto__', action: 'provision', status: 'failed', duration_ms: -1, error: EVIL, did: EVIL },
  ],
  change: host => [{ record: 'change', change: changes['move']?.(host) }],
  changes: host => [{ record: 'changes', changes: Object.values(changes).map(change => change(host)) }],
  service: host => {
    plantRows(host, [sshd, rowOf({ slug: 'cron', id: 'cron' })])
    return [
      { record: 'service', part: 'sshd', was_running: true },
      { record: 'service', part: 'cron', was_running: false },
      { record: 'service', part: null, was_running: true },
    ]
  },
  undone: host => [
    { record: 'change', change: changes['make_directory']?.(host) },
    { record: 'undone', of: 2, was_made: true, lost: '/etc/passwd' },
  ],
  commit: () => [
    {
      record: 'commit',
      at,
      rows: [rowOf({ directory: 'home', keep_paths: ['.ssh'], run_url: EVIL })],
      removed: [],
      discard: ['.hub-deploy/snapshots/plugins/greeter/1-0.9.0'],
    },
  ],
  end: () => [{ record: 'end', end: ended({}), unfinished: true }],
  reported: () => [
    { record: 'end', end: ended({ outcome: 'success', rollback: null }) },
    { record: 'reported', attempts: 1 },
  ],
  recovery: () => [{ record: 'recovery', at, by: DEPLOYMENT_ID }],
}

function plantJournal(host: ConfinedHost, later: readonly object[]): void {
  const facts = factsOf({ run: { ...factsOf().run, url: `http://${host.address}/run` } })
  const begin = { record: 'begin', facts, report_address: `http://${host.address}`, keep_paths: ['data'] }
  plantFile(host, 'journal.jsonl', journalText([begin, ...later]))
}

function plantFile(host: ConfinedHost, name: string, content: string | object): void {
  const text = typeof content === 'string' ? content : JSON.stringify(content)
  host.plant(`umask 077; cat > .hub-deploy/new && mv .hub-deploy/new '.hub-deploy/${name}'`, text)
}

function plantRows(host: ConfinedHost, rows: readonly object[]): void {
  const file = JSON.parse(readFileSync(join(host.root, '.hub-deploy/installed.json'), 'utf8'))
  const snapshots = file.installed[0].snapshots
  plantFile(host, 'installed.json', { ...file, installed: [{ ...file.installed[0], snapshots }, ...rows] })
}

const plants: Record<string, Plant> = {}
for (const [kind, later] of Object.entries(records))
  plants[`a journal with the record ${kind}`] = host => plantJournal(host, later(host))
for (const [what, change] of Object.entries({ ...changes, ...otherChanges }))
  plants[`the announcement of ${what}`] = host => plantJournal(host, [{ record: 'change', change: change(host) }])
plants['a pending service of another program'] = host =>
  plantRows(host, [
    { ...sshd, service_pending: true },
    {
      ...rowOf({ slug: 'cron', id: 'cron' }),
      service_pending: true,
      pending_services: [{ part: 'cron', was_running: false }],
    },
  ])
plants['a part of the record in a directory that leads out of the root'] = host => {
  host.plant(`ln -sfn ${host.outside} away`)
  plantRows(host, [rowOf({ id: 'units', slug: 'units', directory: 'away', snapshots: [snapshotOf('1-1.0.0')] })])
}
plants['an outbox'] = host => {
  for (const [nth, address] of [`http://${host.address}`, '__proto__', `file://${host.outside}/secret`].entries())
    plantFile(host, `outbox/${nth}.json`, { schema: 1, address, report: reportOf({ slug: 'sshd', host_id: EVIL }) })
}
plants['a report'] = host =>
  plantFile(host, 'reports/2099-a.json', reportOf({ error: { code: 'cancelled', message: EVIL, step: EVIL } }))
plants['a lock'] = host => {
  const who = { pid: 1, start_time: null, boot_id: null, machine_id: null, kernel_lock: null, pid_namespace: null }
  const words = { run_url: `http://${host.address}`, deployment: EVIL, since: EVIL }
  plantFile(host, 'lock', { id: DEPLOYMENT_ID, hostname: '__proto__', ...who, ...words })
}
plants['an audit log'] = host => plantFile(host, 'audit.jsonl', `{"__proto__":"${EVIL}"}\n`)
plants['a record of a tree'] = host =>
  host.plant(
    'for file in .hub-deploy/trees/*; do printf -- "-\\t644\\t1\\t\\t../../../outside/secret\\n" > $file; done',
  )
plants['integration.yaml'] = host =>
  host.plant(`ln -sfn ${host.outside} away; printf 'plugins: {directory: away}\\n' > integration.yaml`)
for (const file of [
  ...['journal.jsonl', 'installed.json', 'lock', 'kernel-lock', 'audit.jsonl', 'reserve'].map(
    name => `.hub-deploy/${name}`,
  ),
  ...['integration.yaml', 'plugins/greeter.env', 'plugins/greeter/.env', 'plugins/greeter/plugin.yaml'],
  ...['plugins/greeter/plugin.sig', '.hub-deploy/staging/a', '.hub-deploy/outbox/a.json', '.hub-deploy/reports/a.json'],
]) {
  plants[`a symlink as ${file}`] = host => host.plant(`ln -sfn ${host.outside}/secret ${file}`)
  plants[`a pipe as ${file}`] = host => host.plant(`rm -f ${file}; mkfifo -m 600 ${file}`)
}
for (const folder of [
  ...['', '/staging', '/snapshots', '/trees', '/reports', '/outbox', '/rename-probe'].map(name => `.hub-deploy${name}`),
  ...['.hub-deploy/snapshots/plugins/greeter', '.hub-deploy/snapshots/set-aside', 'plugins', 'plugins/greeter'],
  ...['.hub-deploy/staging/discarded-a', `.hub-deploy/staging/${DEPLOYMENT_ID}`],
])
  plants[`a symlink as ${folder}`] = host => host.plant(`rm -rf ${folder}; ln -s ${host.outside} ${folder}`)
for (const field of Object.keys(installedRowSchema.def.shape))
  plants[`a row with a hostile ${field}`] = host => {
    const [row] = JSON.parse(readFileSync(join(host.root, '.hub-deploy/installed.json'), 'utf8')).installed
    const value = HOSTILE[field.length % HOSTILE.length]
    plantFile(host, 'installed.json', { schema: 1, installed: [{ ...row, [field]: value }] })
  }

const skip = whyNoConfinement()

describe('a service that can write only below the project root', { skip }, () => {
  let host: ConfinedHost
  before(async () => {
    host = await openConfinedHost()
  })
  beforeEach(() => host.reset())
  after(async () => await host.close())

  it('really cannot write elsewhere', () => {
    for (const path of [host.outside, '/tmp', '/var/lib'])
      assert.throws(() => host.plant(`touch ${path}/file`), /Read-only file system/)
    host.plant('touch file')
  })

  it('plants every kind of record and of change', () => {
    const kinds = recordSchema.def.getter().def.options.map(({ def }) => def.shape.record.def.values[0])
    assert.deepEqual(Object.keys(records).toSorted(), kinds.toSorted())
    const types = changeSchema.def.getter().def.options.map(({ def }) => def.shape.type.def.values[0])
    assert.deepEqual(Object.keys(changes).toSorted(), types.toSorted())
  })

  for (const [nth, [what, plant]] of Object.entries(plants).entries()) {
    // In CI, one of the six for each: over the table, everything that can act meets each kind of file.
    const turn = ACTORS[nth % ACTORS.length] as Actor
    const actors = byExtent<readonly Actor[]>({ sample: [], ci: [turn], full: ACTORS })
    for (const actor of actors)
      it(`does nothing outside the root with ${what} when ${actor} reads it`, async () => {
        plant(host)
        const log = await host.act(actor, DEPLOYMENT_ID)
        assert.deepEqual(host.damage(log), [], log)
      })
  }
})
