import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, afterEach, before, describe, it, type TestContext } from 'node:test'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { type LoopbackServer, makeCertificate, serve, serveTls } from '../../net/loopback-server.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { openProjectStage, type ProjectStage } from '../harness/project-stage.ts'
import { type Answer, answerJson, redirectTo } from '../harness/untrusted-hub.ts'
import {
  answersOf,
  descriptorOf,
  goodOffer,
  type ProjectAnswers,
  type SealedOffer,
  serveUntrustedProjectHub,
  TOKEN,
  type UntrustedProjectHub,
} from '../harness/untrusted-project-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

const BEARER = `Bearer ${TOKEN}`

let stage: ProjectStage
let offer: SealedOffer
before(async () => {
  stage = await openProjectStage()
  offer = goodOffer(stage)
})
afterEach(() => rmSync(stage.root, { recursive: true, force: true }))
after(() => stage.close())

function serveHub(t: TestContext, answers: Partial<ProjectAnswers> = {}): Promise<UntrustedProjectHub> {
  return serveUntrustedProjectHub(t, answersOf(stage, offer, answers))
}

/** A server that is not a hub and serves the artifact to anyone. */
function serveStorage(t: TestContext): Promise<LoopbackServer> {
  return serve(t, (_, response) => response.end(offer.bytes))
}

async function deployFrom(url: string, inputs: Record<string, string> = {}): Promise<void> {
  const { exitCode, log } = await stage.deploy({ 'hub-url': url, ...inputs })
  assert.equal(exitCode, 0, log)
}

function describedAt(url: string): Answer {
  return answerJson(200, descriptorOf(stage, offer, { download_url: url }))
}

/** Asserts that the server received one request, without a secret of the deployment. */
function assertReceivedNoSecret({ requests }: LoopbackServer): void {
  assert.equal(requests.length, 1)
  const received = JSON.stringify(requests.map(({ url, rawHeaders }) => [url, rawHeaders]))
  for (const secret of [TOKEN, stage.devkey, stage.credential]) assert.ok(!received.includes(secret))
}

describe('the access token', () => {
  it('is sent with every call after the login, and the dev key and the credential with one call each', async t => {
    const hub = await serveHub(t)
    await deployFrom(hub.url)
    assert.deepEqual(
      hub.calls.map(({ route, authorization }) => [route, authorization]),
      [
        ['auth', undefined],
        ['latest', BEARER],
        ['artifact', BEARER],
        ['download', BEARER],
        ['authorize', BEARER],
        ['report', BEARER],
      ],
    )
    const holding = (secret: string) =>
      hub.calls.filter(({ body }) => JSON.stringify(body ?? '').includes(secret)).map(({ route }) => route)
    assert.deepEqual([holding(stage.devkey), holding(stage.credential)], [['auth'], ['authorize']])
  })

  it('is not sent to a download_url of another origin', async t => {
    const storage = await serveStorage(t)
    const hub = await serveHub(t, { artifact: describedAt(`${storage.url}/blob?signed=yes`) })
    await deployFrom(hub.url)
    assertReceivedNoSecret(storage)
  })

  it('is not sent after a redirect to another origin', async t => {
    const storage = await serveStorage(t)
    const hub = await serveHub(t, { download: redirectTo(`${storage.url}/blob`) })
    await deployFrom(hub.url)
    assert.equal(hub.callsTo('download')[0]?.authorization, BEARER)
    assertReceivedNoSecret(storage)
  })

  it('is not sent to the hub after a redirect from another origin', async t => {
    let back: Answer = () => {}
    const storage = await serve(t, (request, response) => back(response, request))
    const hub = await serveHub(t, { artifact: describedAt(`${storage.url}/blob`) })
    back = redirectTo(`${hub.url}/download`)
    await deployFrom(hub.url)
    assert.deepEqual(
      hub.callsTo('download').map(({ authorization }) => authorization),
      [undefined],
    )
  })

  it('is not sent after a redirect of any other call, and neither is a posted body', { skip: ONLY_IN_CI }, async t => {
    const elsewhere = await serve(t, (_, response) => response.end('{}'))
    for (const route of ['auth', 'latest', 'authorize', 'report'] as const) {
      const hub = await serveHub(t, { [route]: redirectTo(`${elsewhere.url}/v1`, 307) })
      assert.equal((await stage.deploy({ 'hub-url': hub.url })).exitCode, 1)
    }
    assert.deepEqual(
      elsewhere.requests.map(({ method, headers }) => [method, headers.authorization]),
      [['GET', undefined]],
    )
  })
})

describe('a hub that issues a token with text that the run itself writes', () => {
  it('cannot remove the digest of the artifact from the outputs and the records', async t => {
    const digest = createHash('sha256').update(offer.bytes).digest('hex')
    const hub = await serveHub(t, { auth: answerJson(200, { access_token: digest }) })
    const { exitCode, outputs, summary } = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([exitCode, outputs['artifact-sha256']], [0, digest])
    const audit = readFileSync(join(stage.root, '.hub-deploy/audit.jsonl'), 'utf8')
    for (const text of [audit, readFileSync(outputs['report-path'] ?? '', 'utf8'), summary]) {
      assert.doesNotMatch(text, /\*\*\*/)
      assert.ok(text.includes(digest))
    }
  })

  it('cannot remove the id of the host or the paths from the outputs', { skip: ONLY_IN_CI }, async t => {
    const name = 'the-name-of-this-host'
    for (const token of [name, stage.root, `${stage.root}/.hub-deploy`]) {
      const hub = await serveHub(t, { auth: answerJson(200, { access_token: token }) })
      const { exitCode, outputs } = await stage.deploy({ 'hub-url': hub.url, 'host-id': name })
      assert.equal(exitCode, 0)
      assert.doesNotMatch(JSON.stringify(outputs), /\*\*\*/)
    }
  })

  const addresses: Record<string, (host: string) => string> = {
    'its own address': host => `http://${host}`,
    'the URL of a call': host => `http://${host}/v1/projects/shop/versions/latest`,
    'a part of its own URLs': host => `${host}/v1/deployments/rep`,
  }
  for (const [name, tokenFor] of sampled(Object.entries(addresses), 1)) {
    for (const [run, inputs] of Object.entries({ started: {}, refused: { 'keep-snapshots': 'many' } })) {
      it(`cannot remove ${name} from the messages and the report of a run that is ${run}`, async t => {
        let token = ''
        const auth: Answer = (...call) => answerJson(200, { access_token: token })(...call)
        const refusal = answerJson(400, {})
        const hub = await serveHub(t, { auth, latest: refusal, report: refusal })
        token = tokenFor(new URL(hub.url).host)
        // A refused run creates no project root, and writes no local report without one.
        mkdirSync(stage.root)
        const result = await stage.deploy({ 'hub-url': hub.url.replace('http:', 'HTTP:'), ...inputs })
        assert.equal(hub.callsTo('report')[0]?.authorization, `Bearer ${token}`)
        const { error, reported } = readLocalReport(result)
        const latest = run === 'started' ? [`${hub.url}/v1/projects/shop/versions/latest answered 400`] : []
        const report = `${hub.url}/v1/deployments/report answered 400`
        for (const url of latest) assert.ok(error?.message.includes(url), error?.message)
        assert.ok(reported.error?.includes(report), reported.error ?? '')
        for (const url of [...latest, report]) assert.ok(result.log.includes(url), result.log)
        assert.ok(!result.log.includes(`::add-mask::${token}`), result.log)
        assert.doesNotMatch(result.summary, /\*\*\*/)
      })
    }
  }

  it('is refused when the token is shorter than 16 characters', { skip: ONLY_IN_CI }, async t => {
    const hub = await serveHub(t, { auth: answerJson(200, { access_token: 'v2.0.0-of-shop1' }) })
    const { outputs, log } = await stage.deploy({ 'hub-url': hub.url })
    assert.deepEqual([outputs['error-code'], outputs['state']], ['bad_response', 'failed'], log)
    assert.doesNotMatch(log, /::add-mask::v2/)
  })
})

describe('a hub over TLS', () => {
  const certificate = makeCertificate()
  const skip = certificate === undefined ? 'there is no openssl' : false

  it('that lists its own artifact under plain http is asked for it over https', { skip }, async t => {
    let describe: Answer = () => {}
    const artifact: Answer = (response, request) => describe(response, request)
    const answers = answersOf(stage, offer, { artifact })
    const hub = await serveUntrustedProjectHub(t, answers, (on, handler) => serveTls(on, certificate ?? {}, handler))
    describe = describedAt(`${hub.url.replace('https:', 'http:')}/download`)
    writeFileSync(join(stage.workspace.path, 'ca.pem'), certificate?.cert ?? '')
    await deployFrom(hub.url, { 'ca-file': 'ca.pem' })
    assert.equal(hub.callsTo('download')[0]?.authorization, BEARER)
  })

  it('is refused without its certificate authority', { skip }, async t => {
    const answers = answersOf(stage, offer)
    const hub = await serveUntrustedProjectHub(t, answers, (on, handler) => serveTls(on, certificate ?? {}, handler))
    const { outputs } = await stage.deploy({ 'hub-url': hub.url })
    assert.equal(outputs['error-code'], 'network')
    assert.deepEqual(hub.calls, [])
  })
})
