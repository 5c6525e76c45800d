import assert from 'node:assert/strict'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi, whyRightsAreLeftToCi } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import { acceptedReports, listHost, listOwn } from '../harness/evidence.ts'
import { assertSucceeds } from '../harness/prepared-host.ts'
import { openSafeFolder, RECOVER, runRecover, writeSafeHostConfig } from '../harness/processes.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import {
  type HostStage,
  healthcheck,
  openRunningHost,
  planWith,
  RESTART,
  runningHostConfig,
  unitChanges,
} from '../harness/stage.ts'
import { GROUP, RUNNER, whyNoTwoUsers } from '../harness/two-users.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: HostStage
let journal: string

/** Runs a deployment that is killed by the first call of its health check. */
async function killInHealthCheck(): Promise<ActionResult> {
  stage.standIns.add('check', 'if [ ! -e killed ]; then touch killed; kill -9 $PPID; exit 1; fi; echo fine')
  stage.writePlan(planWith(RESTART, healthcheck({ timeout: 60 })))
  const dead = await stage.deployHere()
  assert.equal(dead.signal, 'SIGKILL', dead.log)
  return dead
}

const safe = openSafeFolder()
/** The options for the host config of the host, in a place that only root and this user can change. */
const withConfig = (): string[] => ['--host-config', writeSafeHostConfig(safe, runningHostConfig(stage))]
const servicePending = (): unknown =>
  JSON.parse(readFileSync(join(stage.root, '.hub-deploy/installed.json'), 'utf8')).installed[0].service_pending

const recover = (...args: string[]) => runRecover(['--project-root', stage.root, ...args], stage.standIns.path)

describe('recover.js', () => {
  beforeEach(async () => {
    stage = await openRunningHost()
    journal = join(stage.root, '.hub-deploy/journal.jsonl')
  })
  afterEach(() => stage.close())

  it('restores the old version and its service after a kill in the health check, and checks its health', {
    skip: ONLY_IN_CI,
  }, async () => {
    const before = listHost(stage.root)
    await killInHealthCheck()
    assert.notDeepEqual(listHost(stage.root), before)
    const { status, stdout, stderr } = recover(...withConfig())
    assert.deepEqual([status, stderr], [0, ''], stdout)
    assert.deepEqual(listHost(stage.root), before)
    assert.equal(stage.standIns.running(), '1.0.0')
    assert.deepEqual(unitChanges(stage), ['restart greeter.service', 'restart greeter.service'])
    assert.match(stdout, /greeter is healthy again/)
    const [name] = listOwn(stage, 'reports').slice(-1)
    const report = JSON.parse(readFileSync(join(stage.root, '.hub-deploy/reports', name ?? ''), 'utf8'))
    assert.deepEqual([report.outcome, report.rollback.healthy, report.reported.accepted], ['rolled_back', true, false])
  })

  const LATER: Record<string, () => Promise<void>> = {
    'the next deployment': async () => {
      const { outputs, log } = await stage.deployHere({ version: '1.0.0' })
      assert.deepEqual([outputs['outcome'], outputs['changed']], ['success', 'false'], log)
    },
    'recover.js with a host config': async () => {
      const { status, stdout, stderr } = recover(...withConfig())
      assert.deepEqual([status, stderr], [0, ''], stdout)
      assert.match(stdout, /greeter is healthy again/)
      assert.doesNotMatch(stdout, /Nothing to recover/)
      assert.equal(recover(...withConfig()).stdout, `Nothing to recover in ${stage.root}.\n`)
    },
  }
  for (const [who, act] of Object.entries(LATER))
    it(`restores only the files without a host config, names the service, and leaves it to ${who}`, async () => {
      const { '.hub-deploy/installed.json': _, ...before } = listHost(stage.root)
      await killInHealthCheck()
      const { status, stderr } = recover()
      assert.equal(status, 0, stderr)
      assert.equal(
        stderr,
        'Warning: The service of greeter was not restarted and not checked, because there is no host config.\n',
      )
      const { '.hub-deploy/installed.json': __, ...after } = listHost(stage.root)
      assert.deepEqual(after, before)
      assert.deepEqual([stage.standIns.running(), servicePending()], ['2.0.0', true])
      assert.deepEqual(unitChanges(stage), ['restart greeter.service'])
      await act()
      assert.deepEqual([stage.standIns.running(), servicePending()], ['1.0.0', undefined])
      assert.equal(unitChanges(stage)[1], 'restart greeter.service')
    })

  it('refuses a host config that others may have written or that cannot be used, and touches nothing', async () => {
    await killInHealthCheck()
    const good = writeSafeHostConfig(safe, runningHostConfig(stage))
    const at = (name: string, mode = 0o600): string => {
      const path = join(safe, name)
      copyFileSync(good, path)
      chmodSync(path, mode)
      return path
    }
    const inRoot = join(stage.root, 'plugins/host-config.yaml')
    copyFileSync(good, inRoot)
    chmodSync(inRoot, 0o600)
    symlinkSync(inRoot, join(safe, 'link-into-root.yaml'))
    symlinkSync(good, join(stage.root, 'plugins/link-out.yaml'))
    for (const [folder, mode] of [
      ['open', 0o777],
      ['sticky', 0o1777],
    ] as const) {
      mkdirSync(join(safe, folder))
      chmodSync(join(safe, folder), mode)
      at(`${folder}/host-config.yaml`)
    }
    writeFileSync(join(safe, 'broken.yaml'), 'version: 2\n', { mode: 0o600 })
    const refused: Record<string, RegExp> = {
      [inRoot]: /lies below the project root/,
      [join(safe, 'link-into-root.yaml')]: /lies below the project root/,
      [join(stage.root, 'plugins/link-out.yaml')]: /lies below the project root/,
      [at('group.yaml', 0o620)]: /only root and this user can write, but .*group\.yaml can be changed by group /,
      [at('others.yaml', 0o602)]: /others\.yaml can be changed by every user/,
      [join(safe, 'open/host-config.yaml')]: /open can be changed by .*every user/,
      [join(safe, 'sticky/host-config.yaml')]: /sticky can be changed by .*every user/,
      [join(safe, 'broken.yaml')]: /broken\.yaml cannot be used: .*version/,
      [join(safe, 'gone.yaml')]: /gone\.yaml cannot be used: there is no such file/,
    }
    const before = [listHost(stage.root), readFileSync(journal, 'utf8'), stage.standIns.changes()]
    for (const [path, expected] of Object.entries(refused)) {
      const { status, stdout, stderr } = recover('--host-config', path)
      assert.deepEqual([status, stdout], [2, ''], path)
      assert.match(stderr, expected)
      assert.match(stderr, /^Error: .*\n$/)
    }
    assert.deepEqual([listHost(stage.root), readFileSync(journal, 'utf8'), stage.standIns.changes()], before)
  })

  it('refuses a host config of another user', { skip: whyRightsAreLeftToCi() }, () => {
    const path = writeSafeHostConfig(safe, 'version: 1\n')
    chownSync(path, 65_534, 65_534)
    const { status, stderr } = recover('--host-config', path)
    chownSync(path, 0, 0)
    assert.equal(status, 2)
    assert.match(stderr, /host-config\.yaml can be changed by user .*65534/)
  })

  it('changes nothing as a user who does not own the records, even as root, and names their owner', {
    skip: whyNoTwoUsers(),
  }, async () => {
    await killInHealthCheck()
    const own = join(stage.root, '.hub-deploy')
    chownSync(own, RUNNER, GROUP)
    const before = [listHost(stage.root), readFileSync(journal, 'utf8'), stage.standIns.changes()]
    const options = ['--host-config', join(stage.root, 'no-such-file'), '--allow-shared-root']
    const { status, stdout, stderr } = recover(...options)
    assert.deepEqual([status, stdout], [2, ''])
    assert.deepEqual([listHost(stage.root), readFileSync(journal, 'utf8'), stage.standIns.changes()], before)
    assert.match(stderr, /belongs to user 54001, but this program runs as user root \(0\)/)
    const command = `sudo -u '#${RUNNER}' ${process.execPath} ${RECOVER} --project-root ${stage.root} ${options.join(' ')}`
    assert.ok(stderr.includes(`run this as user ${RUNNER} (${command})`), stderr)
    chownSync(own, 0, 0)
  })

  it('leaves its report to the next run, which sends it exactly once', { skip: ONLY_IN_CI }, async () => {
    const dead = await killInHealthCheck()
    assert.equal(recover().status, 0)
    const ofDead = () => acceptedReports(stage).filter(row => row.version === '2.0.0')
    assert.deepEqual([ofDead().length, listOwn(stage, 'outbox').length], [0, 1])
    for (let run = 1; run <= 2; run++) await stage.deployHere({ version: '7.0.0' })
    assert.deepEqual(
      ofDead().map(row => row.status),
      ['rolled_back'],
    )
    assert.deepEqual(listOwn(stage, 'outbox'), [])
    const { state } = await stage.deployHere({}, { phase: 'post', state: dead.state })
    assert.deepEqual([state, ofDead().length], [{}, 1])
  })

  it('changes nothing and exits with 0 when there is nothing to recover', () => {
    const before = listHost(stage.root)
    const own = listOwn(stage, '.')
    const { status, stdout } = recover()
    assert.deepEqual([status, stdout], [0, `Nothing to recover in ${stage.root}.\n`])
    assert.deepEqual([listHost(stage.root), listOwn(stage, '.'), stage.standIns.calls()], [before, own, []])
  })

  it('warns, blocks no service and creates no file if nothing was ever deployed', () => {
    const root = stage.workspace.path
    const before = listTree(root)
    const { status, stdout, stderr } = runRecover(['--project-root', root], stage.standIns.path)
    assert.deepEqual([status, stdout], [0, ''])
    assert.equal(
      stderr,
      `Warning: ${root} has no .hub-deploy, so no deployment is recorded there: is the path right?\n`,
    )
    assert.deepEqual(listTree(root), before)
  })

  it('exits with 1 and the same sentence as a deployment when installed.json is damaged', async () => {
    writeFileSync(join(stage.root, '.hub-deploy/installed.json'), '{"installed": [')
    const { status, stdout, stderr } = recover()
    assert.deepEqual([status, stdout], [1, ''])
    assert.match(stderr, /^Error: .*installed\.json.*\n$/)
    const { outputs, log } = await stage.deployHere({ version: '2.0.0' })
    assert.equal(outputs['outcome'], 'inconsistent')
    assert.ok(log.includes(stderr.slice('Error: '.length).trim()), log)
  })

  it('restores the files even if the record is damaged, and exits with 1', { skip: ONLY_IN_CI }, async () => {
    const before = listTree(join(stage.root, 'plugins'))
    await killInHealthCheck()
    writeFileSync(join(stage.root, '.hub-deploy/installed.json'), '{"installed": [')
    const { status, stderr } = recover(...withConfig())
    assert.equal(status, 1)
    assert.match(stderr, /installed\.json is not a record that this action writes .* move it away/)
    assert.deepEqual(listTree(join(stage.root, 'plugins')), before)
  })

  it('exits with 1 when the record is not a file', { skip: ONLY_IN_CI }, () => {
    const record = join(stage.root, '.hub-deploy/installed.json')
    rmSync(record)
    mkdirSync(record, { mode: 0o700 })
    const { status, stderr } = recover()
    assert.equal(status, 1)
    assert.match(stderr, /installed\.json must be a file/)
  })

  it('exits with 0 and warns if there is nothing to recover and others can write to the project root', () => {
    chmodSync(stage.root, 0o777)
    const { status, stderr } = recover()
    assert.equal(status, 0)
    assert.match(stderr, /There is nothing to recover, but a deployment may refuse this host\. /)
    assert.match(stderr, /or set --allow-shared-root if you trust these users/)
    if (process.getuid?.() === 0) assert.match(stderr, /Only root \(0\), the user of this runner, may/)
    assert.equal(recover('--allow-shared-root').status, 0)
  })

  it('exits with 1 when the host is inconsistent, touches no service, and says what to do', async () => {
    await killInHealthCheck()
    writeFileSync(journal, readFileSync(journal, 'utf8').replace('"change"', '"chance"'))
    const calls = stage.standIns.changes()
    const installed = () => [listTree(join(stage.root, 'plugins')), readFileSync(journal, 'utf8')]
    const before = installed()
    const { status, stderr } = recover()
    assert.equal(status, 1)
    assert.match(stderr, /^Error: The journal .* is damaged .*\n$/)
    assert.deepEqual([installed(), stage.standIns.changes()], [before, calls])
  })

  it('does not obey a journal that another user may have written', async () => {
    await killInHealthCheck()
    chmodSync(join(stage.root, '.hub-deploy'), 0o770)
    const before = readFileSync(journal, 'utf8')
    const { status, stderr } = recover()
    assert.equal(status, 1)
    assert.match(stderr, /chmod 700/)
    assert.equal(readFileSync(journal, 'utf8'), before)
  })

  it('names the live holder of the lock, waits for it, and exits with 75 when time is up', {
    skip: ONLY_IN_CI,
  }, async () => {
    const marker = join(stage.standIns.bin, '../waiting')
    stage.standIns.add('check', `touch '${marker}'; exec sleep 3600`)
    stage.writePlan(planWith(RESTART, healthcheck({ timeout: 60 })))
    const checking = Promise.withResolvers<number>()
    let pid = 0
    const running = stage.deployHere(
      {},
      {
        onStart: started => {
          pid = started
        },
        onLog: text => text.includes('healthchecking') && checking.resolve(pid),
      },
    )
    const holder = await checking.promise
    const { status, stdout, stderr } = recover('--lock-timeout-seconds', '1')
    process.kill(holder, 'SIGKILL')
    await running
    assert.equal(status, 75, stderr)
    assert.match(stdout, new RegExp(`Waiting for the lock of this host: process ${holder} `))
    assert.match(stderr, /Another deployment has locked this host/)
  })
})

describe('the arguments of recover.js', () => {
  const REFUSED: Record<string, [string[], RegExp]> = {
    'no arguments': [[], /--project-root is missing/],
    'a relative root': [
      ['--project-root', 'srv'],
      /--project-root must be an absolute path.*, but found "srv" \(--help lists the options\)/,
    ],
    'a root that does not exist': [['--project-root', '/no/such/root'], /is not a directory/],
    'an unknown option': [['--project-root', '/tmp', '--force'], /--force/],
    'a timeout that is not a number': [
      ['--project-root', '/tmp', '--lock-timeout-seconds', '1m'],
      /--lock-timeout-seconds must be a whole number/,
    ],
  }
  for (const [name, [args, expected]] of sampled(Object.entries(REFUSED), 2)) {
    it(`refuses ${name} in one line and exits with 2`, () => {
      const { status, stdout, stderr } = runRecover(args)
      assert.deepEqual([status, stdout], [2, ''])
      assert.match(stderr, expected)
      assert.match(stderr, /^Error: .*--help.*\n$/)
    })
  }

  it('prints its options for --help', () => {
    const { status, stdout, stderr } = runRecover(['--help'])
    assert.deepEqual([status, stderr], [0, ''])
    for (const option of ['--project-root DIR', '--host-config FILE', '--lock-timeout-seconds', '--allow-shared-root'])
      assert.ok(stdout.includes(option))
  })
})

describe('recover.js on a host of a project', () => {
  it('restores all parts of a deployment that was killed', { skip: ONLY_IN_CI }, async t => {
    const project = await openProjectStage()
    t.after(() => project.close())
    const bin = join(project.workspace.path, 'bin')
    mkdirSync(bin)
    writeFileSync(join(bin, 'check'), '#!/bin/sh\nkill -9 $PPID\nsleep 60\n', { mode: 0o755 })
    const config = `version: 1\nplugins: {cart: {healthcheck: {command: [${bin}/check]}}}\n`
    writeFileSync(join(project.workspace.path, 'host-config.yaml'), config)
    await project.publish('1.0.0', projectFiles('1.0.0'))
    assertSucceeds(await project.deploy())
    const before = listHost(project.root)
    const files = projectFiles('2.0.0')
    const plan = `${files['deployment/install.yaml']}  - {id: ok, action: healthcheck, plugin: cart, timeout: 60, depends_on: [mailer]}\n`
    await project.publish('2.0.0', { ...files, 'deployment/install.yaml': plan })
    const dead = await project.deploy({ 'host-config': 'host-config.yaml' })
    assert.equal(dead.signal, 'SIGKILL', dead.log)
    writeFileSync(join(bin, 'check'), '#!/bin/sh\necho fine\n', { mode: 0o755 })
    const args = ['--project-root', project.root, '--host-config', writeSafeHostConfig(safe, config)]
    const { status, stdout, stderr } = runRecover(args)
    assert.deepEqual([status, stderr], [0, ''], stdout)
    assert.deepEqual(listHost(project.root), before)
    assert.match(stdout, /The interrupted deployment of shop 2\.0\.0 was recovered: it was rolled back to 1\.0\.0\./)
  })
})
