import assert from 'node:assert/strict'
import { after, before, beforeEach, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import {
  assertNothingStrays,
  assertReported,
  commandsIn,
  type Listing,
  listHost,
  readLocalReport,
  readReports,
} from '../harness/evidence.ts'
import { assertKeptSecret, assertTemporariesGone, formsOf, runningParts } from '../harness/project-evidence.ts'
import { openProjectStage, type ProjectStage, projectFiles } from '../harness/project-stage.ts'
import type { Answer } from '../harness/untrusted-hub.ts'
import {
  answersOf,
  goodOffer,
  type ProjectRoute,
  type SealedOffer,
  serveUntrustedProjectHub,
  TOKEN,
  type UntrustedProjectHub,
} from '../harness/untrusted-project-hub.ts'

let stage: ProjectStage
let offer: SealedOffer
let installed: Listing
before(async () => {
  stage = await openProjectStage()
  offer = goodOffer(stage)
  await stage.publish('1.0.0', projectFiles('1.0.0'))
  const { exitCode, log } = await stage.deploy()
  assert.equal(exitCode, 0, log)
})
beforeEach(() => {
  installed = listHost(stage.root)
})
after(() => stage.close())

interface Interrupted {
  hub: UntrustedProjectHub
  result: ActionResult
}

/** Deploys from a hub that sends the signal to the run in place of its first answer on that route. */
async function interruptAt(t: TestContext, route: ProjectRoute, signal: NodeJS.Signals): Promise<Interrupted> {
  const answers = answersOf(stage, offer)
  let pid: number | undefined
  const interrupting: Answer = (response, request) => {
    if (pid === undefined) return answers[route](response, request)
    process.kill(pid, signal)
    pid = undefined
  }
  const hub = await serveUntrustedProjectHub(t, { ...answers, [route]: interrupting })
  const result = await stage.deploy(
    { 'hub-url': hub.url },
    {
      onStart(started) {
        pid = started
      },
    },
  )
  return { hub, result }
}

function post({ hub, result }: Interrupted): Promise<ActionResult> {
  return stage.deploy({ 'hub-url': hub.url }, { phase: 'post', state: result.state })
}

function reportedStatuses({ hub }: Interrupted): unknown[] {
  return hub.callsTo('report').map(({ body }) => (body as Record<string, unknown>)['status'])
}

function assertAsBefore(): void {
  assert.deepEqual(listHost(stage.root), installed)
  assertNothingStrays(stage.root)
  assertTemporariesGone(stage)
}

describe('a project deployment that is cancelled', () => {
  for (const route of sampled(['latest', 'artifact', 'download', 'authorize'] as const, 1)) {
    it(`stops waiting for the hub (${route}), changes nothing and reports the cancellation`, async t => {
      const interrupted = await interruptAt(t, route, 'SIGINT')
      const { result } = interrupted
      assertReported(stage.root, result)
      assert.deepEqual([result.outputs['outcome'], result.outputs['error-code']], ['failed', 'cancelled'], result.log)
      assert.equal(commandsIn(result.log, 'error').length, 1)
      assert.deepEqual(reportedStatuses(interrupted), ['failed'])
      assertAsBefore()
    })
  }
})

describe('a project deployment that is killed', () => {
  for (const route of sampled(['download', 'authorize'] as const, 1)) {
    it(`while it waits for the hub (${route}) is finished by post, which logs in to report it`, async t => {
      const interrupted = await interruptAt(t, route, 'SIGKILL')
      const { result, hub } = interrupted
      assert.deepEqual([result.signal, result.outputs['outcome']], ['SIGKILL', 'interrupted'])
      assertTemporariesGone(stage)
      assertKeptSecret(stage, [result.log], [offer.dek], [TOKEN])
      const { exitCode, log } = await post(interrupted)
      assert.equal(exitCode, 0, log)
      assert.deepEqual([hub.asked().slice(-2), reportedStatuses(interrupted)], [['auth', 'report'], ['failed']])
      const report = readReports(stage.root).get(result.outputs['deployment-id'] ?? '')
      assert.deepEqual([report?.outcome, report?.error?.code], ['failed', 'interrupted'])
      assertKeptSecret(stage, [log], [offer.dek], [TOKEN])
      assertAsBefore()
    })
  }

  it('while it reports is finished by post and stays a success', async t => {
    const interrupted = await interruptAt(t, 'report', 'SIGKILL')
    assert.equal(interrupted.result.signal, 'SIGKILL')
    assertKeptSecret(stage, [interrupted.result.log], [offer.dek], [TOKEN])
    assert.equal((await post(interrupted)).exitCode, 0)
    assert.deepEqual(reportedStatuses(interrupted), ['success', 'success'])
    assert.deepEqual(runningParts(stage), ['2.0.0', '2.0.0', '2.0.0'])
    assertNothingStrays(stage.root)
    const again = await stage.deploy({ 'hub-url': interrupted.hub.url })
    assert.deepEqual([again.outputs['changed'], readLocalReport(again).previous_version], ['false', '2.0.0'])
  })
})

describe('a project deployment that is waiting for its key', () => {
  it('has written no part of the artifact to any file, and has decrypted nothing', async t => {
    const answers = answersOf(stage, offer)
    let seen: Record<string, string> = {}
    const authorize: Answer = (response, request) => {
      seen = { ...listTree(stage.root), ...listTree(stage.workspace.temp) }
      answers.authorize(response, request)
    }
    const hub = await serveUntrustedProjectHub(t, { ...answers, authorize })
    assert.equal((await stage.deploy({ 'hub-url': hub.url, version: '2.0.0' })).exitCode, 0)
    const texts = Object.values(seen)
    assert.ok(texts.length > 10)
    for (const form of [offer.bytes.toString('latin1'), ...formsOf(offer.dek), stage.devkey, stage.credential, TOKEN]) {
      assert.ok(!texts.some(text => text.includes(form)))
    }
  })
})
