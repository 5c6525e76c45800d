import assert from 'node:assert/strict'
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../local/runner.ts'
import { sampled } from '../extent.ts'
import { waitUntil } from '../install/wait-until.ts'
import { acceptedReports, commandsIn, listOwn, readLocalReport } from './harness/evidence.ts'
import { assertNothingStrays, readReports } from './harness/invariants.ts'
import { isNoted, NOTE_PID, onceInLog, readBegun, readHolder, readNotedPid } from './harness/processes.ts'
import { installedRows } from './harness/project-evidence.ts'
import { openProjectStage, projectFiles } from './harness/project-stage.ts'
import { OFFERED_VERSION } from './harness/sealed-offer.ts'
import { openSlowHub, type SlowHub } from './harness/slow-hub.ts'
import { openInstalled, PLUGIN_PLAN, pluginFiles, SERVICE_PLAN, type Stage } from './harness/stage.ts'
import { standIn } from './harness/stand-in.ts'
import { type Answer, answerJson, pluginZip, serveArtifact, serveUntrustedHub } from './harness/untrusted-hub.ts'
import { answersOf, goodOffer, serveUntrustedProjectHub, TOKEN } from './harness/untrusted-project-hub.ts'

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
async function startSlowly(t: TestContext, inputs: Record<string, string> = {}): Promise<SlowRun> {
  const hub = await openSlowHub(t, stage.hub.url)
  const result = stage.deploy({
    version: '2.0.0',
    'hub-url': hub.url,
    'deployments-url': stage.hub.url,
    ...inputs,
  })
  await hub.asked
  return { ...hub, result }
}

/** Deploys another plugin or service, with its own plan. */
async function deployOther(slug: string, plan: string, inputs: Record<string, string> = {}): Promise<ActionResult> {
  writeFileSync(join(stage.workspace.path, 'other.yaml'), plan)
  return await stage.deploy({ slug, 'install-plan': 'other.yaml', ...inputs })
}

async function deployClock(): Promise<ActionResult> {
  await stage.publish('5.0.0', { run: 'tick' }, { kind: 'service', slug: 'clock' })
  return await deployOther('clock', SERVICE_PLAN, { kind: 'service' })
}

function assertEnded({ outputs, log }: ActionResult, outcome: string, more: Record<string, string> = {}): void {
  const names = Object.keys({ outcome, ...more })
  assert.deepEqual(Object.fromEntries(names.map(name => [name, outputs[name]])), { outcome, ...more }, log)
}

function runningVersion(): string | undefined {
  return /version: "(.*)"/.exec(readFileSync(join(stage.root, 'plugins/greeter/plugin.yaml'), 'utf8'))?.[1]
}

describe('a run whose download takes long', () => {
  it('keeps no other run waiting, and then succeeds', async t => {
    const first = await startSlowly(t)
    assert.ok(!existsSync(join(stage.root, '.hub-deploy/lock')))
    assertEnded(await deployClock(), 'success', { changed: 'true' })
    assertEnded(await deployClock(), 'success', { changed: 'false' })
    first.letGo()
    const result = await first.result
    assertEnded(result, 'success', { changed: 'true', 'previous-version': '1.0.0', 'running-version': '2.0.0' })
    const rows = Object.values(installedRows(stage)).map(({ slug, version }) => `${slug} ${version}`)
    assert.deepEqual(rows, ['clock 5.0.0', 'greeter 2.0.0'])
    assertNothingStrays(stage.root)
  })

  it('keeps no project waiting, and does not wait for the download of a project', async t => {
    const shop = await openProjectStage()
    t.after(() => shop.close())
    await shop.publish('1.0.0', projectFiles('1.0.0'))
    const first = await startSlowly(t)
    assertEnded(await shop.deploy({ 'project-root': stage.root }), 'success')
    first.letGo()
    assertEnded(await first.result, 'success')
    const answers = answersOf(shop, goodOffer(shop))
    const asked = Promise.withResolvers<void>()
    const released = Promise.withResolvers<void>()
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
    assertEnded(await deployClock(), 'success')
    released.resolve()
    assertEnded(await project, 'success', { 'previous-version': '1.0.0', version: OFFERED_VERSION })
    assertNothingStrays(stage.root)
  })

  it('is reported by its post step when it was killed', async t => {
    const dead = await killSlowRun(await startSlowly(t))
    const { exitCode, log } = await stage.deploy({}, { phase: 'post', state: dead.state })
    assert.equal(exitCode, 0, log)
    assertReportedDead(dead)
    assertNothingStrays(stage.root)
  })

  it('is reported by a later run if another run has the lock both when it is killed and in its post step', async t => {
    const first = await startSlowly(t)
    const holder = await holdHost(t)
    const dead = await killSlowRun(first)
    const post = await stage.deploy({ 'lock-timeout-seconds': '0' }, { phase: 'post', state: dead.state })
    assert.deepEqual([post.exitCode, commandsIn(post.log, 'error')], [0, []], post.log)
    assert.equal(readReports(stage.root).get(dead.outputs['deployment-id'] ?? ''), undefined)
    holder.letGo()
    assertEnded(await holder.result, 'success')
    assertEnded(await stage.deploy({ version: '2.0.0' }), 'success', { changed: 'false' })
    assertReportedDead(dead)
    assertNothingStrays(stage.root)
  })
})

async function killSlowRun({ result }: SlowRun): Promise<ActionResult> {
  process.kill(readBegun(stage.root), 'SIGKILL')
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

/** A run that has the lock of the host until `letGo` lets it continue or `kill` ends it. */
interface Holder {
  readonly result: Promise<ActionResult>
  letGo(): void
  kill(): void
}

async function holdHost(t: TestContext): Promise<Holder> {
  const path = standIn(t, 'sync', `${NOTE_PID}; exec sleep 3600`)
  const result = stage.deploy({ version: '2.0.0' }, { env: { PATH: path } })
  await waitUntil('a run has locked the host', () => isNoted(path))
  const [run, child] = [readHolder(stage.root), readNotedPid(path)]
  return { result, letGo: () => process.kill(child, 'SIGKILL'), kill: () => process.kill(run, 'SIGKILL') }
}

/** Work of another run or an operator on the host while the slow run downloads, and the effect on the slow run. */
interface Meanwhile {
  act(t: TestContext): Promise<unknown> | unknown
  outcome: string
  expected: Record<string, string>
  /** The version that the host runs in the end. */
  running: string
  inputs?: Record<string, string>
}

const DIES = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', 'kill -9 $PPID; sleep 1'] } } }
const PROVISIONED = `${PLUGIN_PLAN}  - {id: db, action: provision, plugin: greeter, depends_on: [files]}\n`

const MEANWHILE: Record<string, Meanwhile> = {
  'installs the same version': {
    act: async () => assertEnded(await stage.deploy({ version: '2.0.0' }), 'success'),
    outcome: 'success',
    expected: { changed: 'false', 'previous-version': '2.0.0' },
    running: '2.0.0',
  },
  'installs the same version from other bytes': {
    async act(t) {
      const hub = await serveUntrustedHub(t, { artifact: serveArtifact(pluginZip('2.0.0')) })
      assertEnded(await stage.deploy({ version: '2.0.0', 'hub-url': hub.url }), 'success')
    },
    outcome: 'failed',
    expected: { 'error-code': 'version_reused', changed: 'false' },
    running: '2.0.0',
  },
  'dies while it installs': {
    async act() {
      await stage.publish('2.5.0', pluginFiles('2.5.0'))
      writeFileSync(join(stage.workspace.path, 'dies.yaml'), JSON.stringify(DIES))
      const plan = { 'host-config': 'dies.yaml', version: '2.5.0' }
      assert.equal((await deployOther('greeter', PROVISIONED, plan)).signal, 'SIGKILL')
      assert.equal(runningVersion(), '2.5.0')
    },
    outcome: 'success',
    expected: { changed: 'true', 'previous-version': '1.0.0' },
    running: '2.0.0',
  },
  'takes its place for another plugin': {
    async act() {
      await stage.publish('9.0.0', pluginFiles('9.0.0'), { slug: 'guest' })
      const plan = PLUGIN_PLAN.replace('project_id: greeter', 'project_id: guest')
      assertEnded(await deployOther('guest', plan, { 'allow-takeover': 'true' }), 'success')
    },
    outcome: 'failed',
    expected: { 'error-code': 'place_taken', changed: 'false' },
    running: '9.0.0',
  },
  'makes the host unsafe': {
    act: () => chmodSync(stage.root, 0o777),
    outcome: 'failed',
    expected: { 'error-code': 'unsafe_host', changed: 'false' },
    running: '1.0.0',
  },
  'has other keep-paths': {
    act: async () => assertEnded(await stage.deploy({ version: '2.0.0', 'keep-paths': 'letters' }), 'success'),
    outcome: 'success',
    expected: { changed: 'false' },
    running: '2.0.0',
  },
}

describe('a run that downloads', () => {
  for (const [what, { act, outcome, expected, running, inputs }] of sampled(Object.entries(MEANWHILE), 2)) {
    it(`examines the host again if another run ${what}`, async t => {
      const first = await startSlowly(t, inputs)
      await act(t)
      first.letGo()
      const result = await first.result
      assertEnded(result, outcome, expected)
      chmodSync(stage.root, 0o755)
      assert.equal(runningVersion(), running)
      assertEnded(await deployClock(), 'success')
      assert.equal(readReports(stage.root).get(result.outputs['deployment-id'] ?? '')?.outcome, outcome)
      assertNothingStrays(stage.root)
    })
  }

  it('refuses its latest version if another run has installed a newer one', async t => {
    const asked = Promise.withResolvers<void>()
    const released = Promise.withResolvers<void>()
    const hub = await serveUntrustedHub(t, {
      async artifact(response, request) {
        asked.resolve()
        await released.promise
        serveArtifact(pluginZip('2.0.0'), { 'x-plugin': 'greeter@2.0.0' })(response, request)
      },
    })
    const first = stage.deploy({ 'hub-url': hub.url, 'deployments-url': stage.hub.url })
    await asked.promise
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    assertEnded(await stage.deploy(), 'success', { version: '3.0.0' })
    released.resolve()
    const result = await first
    assertEnded(result, 'failed', { 'error-code': 'downgrade_refused', 'previous-version': '3.0.0', changed: 'false' })
    assert.deepEqual(
      readLocalReport(result).states.map(({ state }) => state),
      ['pending', 'fetching', 'verifying_signature', 'failed'],
    )
    assert.equal(runningVersion(), '3.0.0')
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

describe('a run that finds the host locked', () => {
  it('logs in again for its key if the first access token expired while it waited', async t => {
    const shop = await openProjectStage()
    t.after(() => shop.close())
    let tokens = 0
    const answers = answersOf(shop, goodOffer(shop), {
      auth: (response, request) =>
        answerJson(200, { access_token: `${TOKEN}-${++tokens}`, expires_in: 0 })(response, request),
    })
    const authorize: Answer = (response, request) => {
      const isNew = request.headers.authorization === `Bearer ${TOKEN}-2`
      return isNew ? answers.authorize(response, request) : answerJson(401, { error: 'expired' })(response, request)
    }
    const hub = await serveUntrustedProjectHub(t, { ...answers, authorize })
    const holder = await holdHost(t)
    const waiting = onceInLog('Waiting for', () => holder.letGo())
    const project = await shop.deploy({ 'project-root': stage.root, 'hub-url': hub.url }, waiting)
    assertEnded(project, 'success', { version: OFFERED_VERSION })
    const fetched = ['auth', 'latest', 'artifact', 'download']
    assert.deepEqual(hub.asked(), [...fetched, 'authorize', 'auth', 'authorize', 'report'])
    await holder.result
  })

  it('names the holder of the lock, fetches the artifact, and only then waits', async t => {
    const holder = await holdHost(t)
    const pid = readHolder(stage.root)
    const { log, ...waited } = await stage.deploy(
      { version: '2.0.0' },
      onceInLog('Waiting for', () => holder.kill()),
    )
    assertEnded({ log, ...waited }, 'success', { 'previous-version': '1.0.0' })
    const order = [
      `Another deployment is in progress here: process ${pid} `,
      '::group::verifying_signature',
      '::group::waiting',
    ]
    const places = order.map(text => log.indexOf(text))
    assert.ok(!places.includes(-1), log)
    assert.deepEqual(
      places,
      places.toSorted((a, b) => a - b),
    )
    await holder.result
    assert.deepEqual(
      acceptedReports(stage)
        .map(({ version, status }) => `${version} ${status}`)
        .slice(1),
      ['2.0.0 failed', '2.0.0 success'],
    )
    assertNothingStrays(stage.root)
    assert.equal(listOwn(stage, 'reports').length, 3)
  })
})
