import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it, type TestContext } from 'node:test'
import { type ActionResult, runAction } from '../../../local/runner.ts'
import { sampled } from '../../extent.ts'
import { acceptedReports, assertNothingStrays, readReports } from '../harness/evidence.ts'
import { onceInLog, readHolder } from '../harness/processes.ts'
import { installedRows } from '../harness/project-evidence.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { openInstalled, PLUGIN_PLAN, pluginFiles, SERVICE_PLAN, type Stage } from '../harness/stage.ts'
import {
  openGate,
  openSlowHub,
  pluginZip,
  type SlowHub,
  serveArtifact,
  serveUntrustedHub,
} from '../harness/untrusted-hub.ts'
import { answersOf, goodOffer, serveUntrustedProjectHub } from '../harness/untrusted-project-hub.ts'

const KILLING = join(import.meta.dirname, '../harness/kill-before-rename.mjs')

let stage: Stage
beforeEach(async () => {
  stage = await openInstalled(pluginFiles('1.0.0'))
  await stage.publish('2.0.0', pluginFiles('2.0.0'))
})
afterEach(() => stage.close())

interface SlowRun extends SlowHub {
  readonly result: Promise<ActionResult>
}

/** Starts a deployment of greeter 2.0.0. Resolves as soon as the deployment waits for its artifact. */
async function startSlowly(
  t: TestContext,
  inputs: Record<string, string> = {},
  hubUrl: string = stage.hub.url,
): Promise<SlowRun> {
  const hub = await openSlowHub(t, hubUrl)
  const result = stage.deploy({
    version: '2.0.0',
    'hub-url': hub.url,
    'deployments-url': stage.hub.url,
    ...inputs,
  })
  await hub.asked
  return { ...hub, result }
}

async function status(): Promise<ActionResult> {
  const inputs = { 'project-root': stage.root }
  return await runAction({ workspace: stage.workspace, action: 'status', inputs })
}

function assertEnded({ outputs, log }: ActionResult, outcome: string, more: Record<string, string> = {}): void {
  const names = Object.keys({ outcome, ...more })
  assert.deepEqual(Object.fromEntries(names.map(name => [name, outputs[name]])), { outcome, ...more }, log)
}

function runningVersion(): string | undefined {
  return /version: "(.*)"/.exec(readFileSync(join(stage.root, 'plugins/greeter/plugin.yaml'), 'utf8'))?.[1]
}

describe('a run whose download takes long', () => {
  it('has the host, and another run asks the hub for nothing before it has the host itself', async t => {
    const asked: string[] = []
    const gate = await openGate(t, stage.hub.url, route => void asked.push(route))
    const first = await startSlowly(t)
    const pid = readHolder(stage.root)
    await stage.publish('5.0.0', { run: 'tick' }, { kind: 'service', slug: 'clock' })
    writeFileSync(join(stage.workspace.path, 'other.yaml'), SERVICE_PLAN)
    const askedWhileWaiting: string[] = []
    const { log, outputs } = await stage.deploy(
      { slug: 'clock', kind: 'service', 'install-plan': 'other.yaml', 'hub-url': gate.url },
      onceInLog('Waiting for', () => {
        askedWhileWaiting.push(...asked)
        first.letGo()
      }),
    )
    assert.equal(outputs['outcome'], 'success', log)
    assert.deepEqual(askedWhileWaiting, [])
    const url = 'https://code-host.example/example/operations/actions/runs/1001'
    const holder = `process ${pid} on \\S+ has held the lock since \\S+ to deploy greeter 2\\.0\\.0, ${url}`
    assert.match(log, new RegExp(`Waiting for the lock of this host: ${holder}\\. To go first, cancel that run\\.`))
    assertEnded(await first.result, 'success', { 'previous-version': '1.0.0', 'running-version': '2.0.0' })
    const rows = Object.values(installedRows(stage)).map(({ slug, version }) => `${slug} ${version}`)
    assert.deepEqual(rows, ['clock 5.0.0', 'greeter 2.0.0'])
    assertNothingStrays(stage.root)
  })

  it('keeps a project waiting, and waits for the download of a project', async t => {
    const shop = await openProjectStage()
    t.after(() => shop.close())
    await shop.publish('1.0.0', projectFiles('1.0.0'))
    const first = await startSlowly(t)
    const waiting = onceInLog('Waiting for', () => first.letGo())
    assertEnded(await shop.deploy({ 'project-root': stage.root }, waiting), 'success')
    assertEnded(await first.result, 'success')
    const answers = answersOf(shop, goodOffer(shop))
    const [asked, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const hub = await serveUntrustedProjectHub(t, {
      ...answers,
      async download(response, request) {
        asked.resolve()
        await released.promise
        answers.download(response, request)
      },
    })
    const project = shop.deploy({ 'project-root': stage.root, 'hub-url': hub.url })
    await asked.promise
    const next = onceInLog('Waiting for', () => released.resolve())
    assertEnded(await stage.deploy({ version: '2.0.0' }, next), 'success', { changed: 'false' })
    assertEnded(await project, 'success', { 'previous-version': '1.0.0' })
    assertNothingStrays(stage.root)
  })

  it('hinders no dry run, no check and no status, because it has not changed the host yet', async t => {
    const first = await startSlowly(t)
    const { exitCode, log, outputs } = await status()
    assert.deepEqual([exitCode, outputs['drift'], outputs['pending-recovery']], [0, 'false', 'false'], log)
    const rehearsal = await stage.deploy({ version: '2.0.0', 'dry-run': 'true' })
    assertEnded(rehearsal, 'success', { changed: 'false' })
    assert.doesNotMatch(rehearsal.log, /in progress/)
    const [installed] = Object.values(installedRows(stage))
    const check = { version: '1.0.0', 'artifact-sha256': installed?.artifact_sha256 ?? '', 'check-only': 'true' }
    assertEnded(await stage.deploy(check), 'success')
    first.letGo()
    assertEnded(await first.result, 'success')
  })

  it('makes another run that may not wait end as locked, which touches neither its lock nor its journal', async t => {
    const first = await startSlowly(t)
    const second = await stage.deploy({ version: '2.0.0', 'lock-timeout-seconds': '0' })
    assertEnded(second, 'failed', { 'error-code': 'locked', state: 'pending', 'running-version': '1.0.0' })
    assert.ok(existsSync(join(stage.root, '.hub-deploy/journal.jsonl')))
    const post = await stage.deploy({}, { phase: 'post', state: second.state })
    assert.deepEqual([post.exitCode, post.log], [0, ''])
    first.letGo()
    assertEnded(await first.result, 'success')
    assertNothingStrays(stage.root)
  })

  it('uses the plan and the host config as they were when it started', async t => {
    const config = (word: string) => ({
      version: 1,
      provision: { greeter: { command: ['/bin/sh', '-c', `echo ${word} > ${stage.root}/provisioned`] } },
    })
    const path = join(stage.workspace.path, 'host.yaml')
    writeFileSync(path, JSON.stringify(config('first')))
    stage.writePlan(PROVISIONED)
    const first = await startSlowly(t, { 'host-config': 'host.yaml' })
    writeFileSync(path, JSON.stringify(config('second')))
    stage.writePlan(PLUGIN_PLAN)
    first.letGo()
    assertEnded(await first.result, 'success')
    assert.equal(readFileSync(join(stage.root, 'provisioned'), 'utf8'), 'first\n')
  })
})

describe('a run that was killed while it downloaded', () => {
  it('is reported by its post step', async t => {
    const dead = await killSlowRun(await startSlowly(t))
    const { exitCode, log } = await stage.deploy({}, { phase: 'post', state: dead.state })
    assert.equal(exitCode, 0, log)
    assertReportedDead(dead)
    assertNothingStrays(stage.root)
  })

  it('is reported by the next run, which finds the host usable at once', async t => {
    const dead = await killSlowRun(await startSlowly(t))
    const next = await stage.deploy({ version: '2.0.0', 'lock-timeout-seconds': '0' })
    assertEnded(next, 'success', { changed: 'true', 'previous-version': '1.0.0' })
    const story =
      'The interrupted deployment of greeter 2.0.0 was recovered: it had changed no file, and 1.0.0 still runs.'
    assert.ok(next.log.includes(story), next.log)
    assertReportedDead(dead)
    const post = await stage.deploy({}, { phase: 'post', state: dead.state })
    assert.match(post.log, /Nothing of this deployment is left to recover: it had changed no file/)
    assertNothingStrays(stage.root)
  })

  it('waits for its recovery, which status announces, and hinders no check', async t => {
    await killSlowRun(await startSlowly(t))
    assert.equal((await status()).outputs['pending-recovery'], 'true')
    const [installed] = Object.values(installedRows(stage))
    const check = { version: '1.0.0', 'artifact-sha256': installed?.artifact_sha256 ?? '', 'check-only': 'true' }
    assertEnded(await stage.deploy(check), 'success')
  })
})

it('a run that was killed before its journal existed leaves the host usable at once, and nothing to report', async () => {
  const journal = join(stage.root, '.hub-deploy/journal.jsonl')
  const env = { NODE_OPTIONS: `--import=${KILLING}`, KILL_BEFORE: journal }
  const dead = await stage.deploy({ version: '2.0.0' }, { env })
  assertEnded(dead, 'interrupted', { state: 'pending', 'running-version': '1.0.0' })
  assert.ok(!existsSync(journal))
  const post = await stage.deploy({}, { phase: 'post', state: dead.state })
  assert.equal(post.exitCode, 0, post.log)
  const next = await stage.deploy({ version: '2.0.0', 'lock-timeout-seconds': '0' })
  assertEnded(next, 'success', { changed: 'true' })
  assertNothingStrays(stage.root)
})

async function killSlowRun({ result }: SlowRun): Promise<ActionResult> {
  process.kill(readHolder(stage.root), 'SIGKILL')
  const dead = await result
  assertEnded(dead, 'interrupted', { state: 'fetching', 'running-version': '1.0.0' })
  return dead
}

function assertReportedDead({ outputs }: ActionResult): void {
  const report = readReports(stage.root).get(outputs['deployment-id'] ?? '')
  assert.deepEqual(
    [report?.outcome, report?.error?.code, report?.states.map(({ state }) => state).join(' ')],
    ['failed', 'interrupted', 'pending fetching failed'],
  )
  const heard = acceptedReports(stage).filter(({ started_at }) => started_at === report?.started_at)
  assert.deepEqual(
    heard.map(({ version, status }) => [version, status]),
    [['2.0.0', 'failed']],
  )
}

const DIES = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', 'kill -9 $PPID; sleep 1'] } } }
const PROVISIONED = `${PLUGIN_PLAN}  - {id: db, action: provision, plugin: greeter, depends_on: [files]}\n`

/** What a run does that has the host while another run waits to deploy greeter 2.0.0, and how the other run ends. */
interface Meanwhile {
  start(t: TestContext): Promise<SlowRun>
  /** Default: `letGo`. */
  end?: 'kill'
  /** The inputs of the run that waits. */
  inputs?: (t: TestContext) => Promise<Record<string, string>>
  outcome: string
  expected: Record<string, string>
  /** The version that the host runs in the end. */
  running: string
}

const MEANWHILE: Record<string, Meanwhile> = {
  'has installed the same version': {
    start: async t => await startSlowly(t),
    outcome: 'success',
    expected: { changed: 'false', 'previous-version': '2.0.0' },
    running: '2.0.0',
  },
  'has installed the same version from other bytes': {
    async start(t) {
      const hub = await serveUntrustedHub(t, { artifact: serveArtifact(pluginZip('2.0.0')) })
      return await startSlowly(t, {}, hub.url)
    },
    outcome: 'failed',
    expected: { 'error-code': 'version_reused', changed: 'false' },
    running: '2.0.0',
  },
  'has installed a version that is newer than its latest one': {
    async start(t) {
      await stage.publish('3.0.0', pluginFiles('3.0.0'))
      return await startSlowly(t, { version: '3.0.0' })
    },
    async inputs(t) {
      const artifact = serveArtifact(pluginZip('2.0.0'), { 'x-plugin': 'greeter@2.0.0' })
      const { url } = await serveUntrustedHub(t, { artifact })
      return { version: 'latest', 'hub-url': url, 'deployments-url': stage.hub.url }
    },
    outcome: 'failed',
    expected: { 'error-code': 'downgrade_refused', 'previous-version': '3.0.0', changed: 'false' },
    running: '3.0.0',
  },
  'has taken its place for another plugin': {
    async start(t) {
      await stage.publish('9.0.0', pluginFiles('9.0.0'), { slug: 'guest' })
      const plan = PLUGIN_PLAN.replace('project_id: greeter', 'project_id: guest')
      writeFileSync(join(stage.workspace.path, 'other.yaml'), plan)
      const guest = { slug: 'guest', version: '9.0.0', 'install-plan': 'other.yaml', 'allow-takeover': 'true' }
      return await startSlowly(t, guest)
    },
    outcome: 'failed',
    expected: { 'error-code': 'place_taken', changed: 'false' },
    running: '9.0.0',
  },
  'dies while it downloads': {
    start: async t => await startSlowly(t),
    end: 'kill',
    outcome: 'success',
    expected: { changed: 'true', 'previous-version': '1.0.0' },
    running: '2.0.0',
  },
  'dies while it installs': {
    async start(t) {
      await stage.publish('2.5.0', pluginFiles('2.5.0'))
      writeFileSync(join(stage.workspace.path, 'dies.yaml'), JSON.stringify(DIES))
      writeFileSync(join(stage.workspace.path, 'other.yaml'), PROVISIONED)
      return await startSlowly(t, { version: '2.5.0', 'install-plan': 'other.yaml', 'host-config': 'dies.yaml' })
    },
    outcome: 'success',
    expected: { changed: 'true', 'previous-version': '1.0.0' },
    running: '2.0.0',
  },
}

describe('a run that waits for the host', () => {
  for (const [what, { start, end, inputs, outcome, expected, running }] of sampled(Object.entries(MEANWHILE), 2)) {
    it(`finds the host as the other run leaves it: that run ${what}`, async t => {
      const first = await start(t)
      const act = () => (end === 'kill' ? process.kill(readHolder(stage.root), 'SIGKILL') : first.letGo())
      const result = await stage.deploy({ version: '2.0.0', ...(await inputs?.(t)) }, onceInLog('Waiting for', act))
      assertEnded(result, outcome, expected)
      await first.result
      assert.equal(runningVersion(), running)
      assert.equal(readReports(stage.root).get(result.outputs['deployment-id'] ?? '')?.outcome, outcome)
      assertNothingStrays(stage.root)
    })
  }
})
