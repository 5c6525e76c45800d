import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { makeCertificate, serve, serveTls } from '../../net/loopback-server.ts'
import { acceptedReports, commandsIn, readLocalReport } from '../harness/evidence.ts'
import { assertNoSecret, assertRefuses, LIES } from '../harness/refusal.ts'
import { openStage, SERVICE_PLAN, type Stage, writeFiles } from '../harness/stage.ts'
import {
  type Answer,
  answerJson,
  pluginZip,
  redirectTo,
  serveArtifact,
  serveUntrustedHub,
} from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
})
afterEach(() => stage.close())

/** Inputs for fetching from this URL and reporting to the stage's hub. */
function from(url: string): Record<string, string> {
  return { 'hub-url': url, 'deployments-url': stage.hub.url }
}

describe('a redirect of the artifact', () => {
  it('to another origin is followed without the key', async t => {
    const storage = await serveUntrustedHub(t)
    const hub = await serveUntrustedHub(t, { artifact: redirectTo(`${storage.url}/blob/install`) })
    const result = await stage.deploy(from(hub.url))
    assert.equal(result.exitCode, 0, result.log)
    assert.equal(hub.requestsFor('artifact')[0]?.headers['x-api-key'], stage.apiKey)
    const [request] = storage.requests
    assert.equal(storage.requests.length, 1)
    assert.doesNotMatch(JSON.stringify([request?.url, request?.rawHeaders]), new RegExp(stage.apiKey))
  })

  it('within the origin keeps the key', { skip: ONLY_IN_CI }, async t => {
    const artifact: Answer = (response, request) => {
      const answer = request.url?.startsWith('/plugins')
        ? redirectTo('/moved/install', 308)
        : serveArtifact(pluginZip())
      answer(response, request)
    }
    const hub = await serveUntrustedHub(t, { artifact })
    assert.equal((await stage.deploy(from(hub.url))).exitCode, 0)
    assert.deepEqual(
      hub.requestsFor('artifact').map(({ headers }) => headers['x-api-key']),
      [stage.apiKey, stage.apiKey],
    )
  })

  it('to another origin and back drops the key for good', { skip: ONLY_IN_CI }, async t => {
    const away = await serveUntrustedHub(t, { artifact: (response, request) => back(response, request) })
    let back: Answer = () => {}
    const hub = await serveUntrustedHub(t, {
      artifact(response, request) {
        const first = request.url?.startsWith('/plugins')
        const answer = first ? redirectTo(`${away.url}/install`) : serveArtifact(pluginZip())
        answer(response, request)
      },
    })
    back = redirectTo(`${hub.url}/again/install`)
    assert.equal((await stage.deploy(from(hub.url))).exitCode, 0)
    assert.deepEqual(
      hub.requestsFor('artifact').map(({ headers }) => headers['x-api-key']),
      [stage.apiKey, undefined],
    )
  })

  const refused: Record<string, [string, 'insecure_url' | 'bad_response']> = {
    'to plain http elsewhere': ['http://storage.example/install', 'insecure_url'],
    'to a file': ['file:///etc/passwd', 'insecure_url'],
    'with a password in it': ['https://user:pass@storage.example/install', 'insecure_url'],
    'to itself': ['', 'bad_response'],
    'to nowhere': ['http://[', 'bad_response'],
  }
  for (const [name, [location, code]] of sampled(Object.entries(refused), 3)) {
    it(`is not followed ${name}`, async t => {
      const artifact: Answer = (response, request) => redirectTo(location || String(request.url))(response, request)
      const hub = await serveUntrustedHub(t, { artifact })
      await assertRefuses(stage, { code, during: 'fetching' }, from(hub.url))
      assert.equal(hub.requestsFor('artifact').length, 1)
    })
  }

  it('is not followed more than five times', async t => {
    let count = 0
    const artifact: Answer = (response, request) => redirectTo(`/install/${++count}`)(response, request)
    const hub = await serveUntrustedHub(t, { artifact })
    await assertRefuses(stage, { code: 'bad_response', during: 'fetching' }, from(hub.url))
    assert.equal(hub.requestsFor('artifact').length, 6)
  })
})

describe('a hub over TLS', () => {
  const certificate = makeCertificate()
  const skip = certificate === undefined ? 'there is no openssl' : false

  it('is trusted only with ca-file, and cannot redirect to plain http', { skip }, async t => {
    const plain = await serveUntrustedHub(t)
    const secure = await serveTls(t, certificate ?? {}, (request, response) => {
      const isArtifact = request.url?.includes('/install')
      const answer = isArtifact ? redirectTo(`${plain.url}/install`) : answerJson(200, { latest_version: '2.0.0' })
      answer(response, request)
    })
    writeFileSync(join(stage.workspace.path, 'ca.pem'), certificate?.cert ?? '')
    await assertRefuses(stage, { code: 'network', during: 'fetching' }, from(secure.url))
    const refusal = { code: 'insecure_url', during: 'fetching' } as const
    await assertRefuses(stage, refusal, { ...from(secure.url), 'ca-file': 'ca.pem' })
    assert.equal(plain.requests.length, 0)
  })
})

describe('a hub that lies about its bytes', () => {
  const bytes = pluginZip()

  for (const [name, [answers, code, during]] of sampled(Object.entries(LIES), 5)) {
    it(`is refused when it ${name}`, async t => {
      const hub = await serveUntrustedHub(t, answers)
      const { log } = await assertRefuses(stage, { code, during: during ?? 'fetching' }, from(hub.url))
      assert.ok(log.length < 20_000)
      assert.equal(existsSync(join(stage.root, 'plugins')), false)
    })
  }

  it('is given up when it sends one byte at a time', { skip: ONLY_IN_CI }, async t => {
    const artifact: Answer = response => {
      const drip = setInterval(() => response.write('x'), 20)
      response.on('close', () => clearInterval(drip))
    }
    const hub = await serveUntrustedHub(t, { artifact })
    await assertRefuses(stage, { code: 'timeout', during: 'fetching' }, { ...from(hub.url), 'timeout-minutes': '0.05' })
  })

  it('is cut off when it never stops sending', async t => {
    const artifact: Answer = response => {
      const send = () => {
        while (!response.destroyed && response.write(Buffer.alloc(64 * 1024)));
      }
      response.on('drain', send)
      send()
    }
    const hub = await serveUntrustedHub(t, { artifact })
    const refusal = { code: 'archive_too_large', during: 'fetching' } as const
    await assertRefuses(stage, refusal, { ...from(hub.url), 'max-artifact-bytes': '1000000' })
  })

  it('is not believed about anything that the signature does not cover', async t => {
    const headers = { 'x-plugin': 'greeter@9.9.9', 'x-repo': 'dev/greeter@::error::x' }
    const hub = await serveUntrustedHub(t, { artifact: serveArtifact(bytes, headers) })
    await assertRefuses(stage, { code: 'version_mismatch', during: 'extracting' }, from(hub.url))
    const result = await stage.deploy({ ...from(hub.url), version: '2.0.0' })
    assert.deepEqual([result.exitCode, result.outputs['version']], [0, '2.0.0'])
    assert.equal(readLocalReport(result).repo, null)
  })

  it('names the version of a service, and causes a notice when that is not the requested one', {
    skip: ONLY_IN_CI,
  }, async t => {
    stage.writePlan(SERVICE_PLAN)
    const hub = await serveUntrustedHub(t, { artifact: serveArtifact(bytes, { 'x-service': 'clock@2.0.1' }) })
    const result = await stage.deploy({ ...from(hub.url), kind: 'service', slug: 'clock' })
    assert.deepEqual([result.exitCode, result.outputs['version']], [0, '2.0.1'], result.log)
    assert.equal(readLocalReport(result).version_source, 'header')
    assert.match(commandsIn(result.log, 'notice').join('\n'), /2\.0\.0.*2\.0\.1/)
  })

  it('causes a notice when it served a version other than the one that it lists', async t => {
    const artifact: Answer = (response, request) => {
      const isLatest = request.url?.endsWith('version=latest')
      const answer = isLatest ? serveArtifact(pluginZip('1.9.0')) : answerJson(404, { error: 'yanked' })
      answer(response, request)
    }
    const hub = await serveUntrustedHub(t, { artifact })
    const result = await stage.deploy(from(hub.url))
    assert.deepEqual([result.exitCode, result.outputs['version']], [0, '1.9.0'], result.log)
    assert.match(commandsIn(result.log, 'notice').join('\n'), /lists 2\.0\.0.*served 1\.9\.0/)
  })

  it('causes no notice about a version that it lists but never served', { skip: ONLY_IN_CI }, async t => {
    const hub = await serveUntrustedHub(t, { artifact: answerJson(404, { error: 'yanked' }) })
    const result = await assertRefuses(stage, { code: 'not_found', during: 'fetching' }, from(hub.url))
    assert.deepEqual([result.outputs['version'], readLocalReport(result).version_source], ['', null])
  })

  it('cannot downgrade a version that was installed by hand', async t => {
    const root = join(stage.root, 'by-hand')
    writeFiles(join(root, 'plugins/greeter'), { 'plugin.yaml': 'version: "3.0.0"\n' })
    const hub = await serveUntrustedHub(t)
    const result = await stage.deploy({ ...from(hub.url), 'project-root': root })
    assert.equal(result.outputs['error-code'], 'downgrade_refused')
  })
})

describe('the error text of a hub', () => {
  const HOSTILE = [
    '::error::forged',
    'line\r\n::set-output name=outcome::success',
    '##[error]forged',
    '::add-mask::e',
    '\u001b[2J\u001b[31mred\u001b]0;title\u0007',
    '\u202eright to left\u2028\u0000',
    '<img src=x> [link](javascript:alert(1)) | cell @everyone',
  ].join(' ')

  for (const field of sampled(['error', 'detail', 'message'], 1)) {
    it(`is shown without anything that a runner or a terminal would obey, from "${field}"`, async t => {
      const hub = await serveUntrustedHub(t, { artifact: answerJson(410, { [field]: HOSTILE }) })
      const { log, summary } = await assertRefuses(
        stage,
        { code: 'artifact_unavailable', during: 'fetching' },
        from(hub.url),
      )
      assert.match(commandsIn(log, 'error')[0] ?? '', /410.*forged/)
      // biome-ignore lint/suspicious/noControlCharactersInRegex: the test is that the log has no control characters
      assert.doesNotMatch(log, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\u202e]/)
      assert.doesNotMatch(log, /##\[/)
      const commands = log.split('\n').filter(line => line.startsWith('::'))
      assert.ok(commands.every(line => /^::(add-mask|group|endgroup|error|notice|warning)\b/.test(line)))
      assert.equal(commands.filter(line => line.startsWith('::add-mask::')).length, 2)
      assert.doesNotMatch(summary.replace(/\[workflow run\]\(\S+\)/, ''), /<img|\]\(|@everyone/)
    })
  }

  it('never carries a secret into the log, the summary or a report', async t => {
    const answer: Answer = (response, request) =>
      answerJson(403, { error: `unknown key ${request.headers['x-api-key']}` })(response, request)
    const hub = await serveUntrustedHub(t, { artifact: answer, report: answer })
    const refusal = { code: 'authentication_failed', during: 'fetching' } as const
    await assertRefuses(stage, refusal, from(hub.url))
    assert.equal(acceptedReports(stage).length, 1)
    const result = await stage.deploy({ 'hub-url': hub.url })
    assertNoSecret(stage, result)
    assert.doesNotMatch(JSON.stringify(hub.reports), new RegExp(stage.apiKey))
  })

  it('never carries a secret into the journal, or into the output of a recovery with another key', {
    skip: ONLY_IN_CI,
  }, async t => {
    let pid = 0
    const echo: Answer = (response, request) =>
      answerJson(403, { error: `unknown key ${request.headers['x-api-key']}` })(response, request)
    const hub = await serveUntrustedHub(t, { artifact: echo, report: () => process.kill(pid, 'SIGKILL') })
    const onStart = (started: number): void => {
      pid = started
    }
    const killed = await stage.deploy({ 'hub-url': hub.url }, { onStart })
    assert.equal(killed.signal, 'SIGKILL', killed.log)
    const own = join(stage.root, '.hub-deploy')
    assert.match(readFileSync(join(own, 'journal.jsonl'), 'utf8'), /"record":"end".*unknown key \*\*\*/)
    await stage.deploy({ 'api-key': 'another-key' }, { phase: 'post', state: killed.state })
    const files = readdirSync(own, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
    const texts = files.map(({ parentPath, name }) => readFileSync(join(parentPath, name), 'latin1'))
    assert.ok(texts.some(text => text.includes('unknown key ***')))
    assert.deepEqual(
      texts.filter(text => text.includes(stage.apiKey)),
      [],
    )
  })

  it('that comes from another origin through a redirect is quoted neither to the hub nor in the log', async t => {
    const internal = await serve(t, (_, response) => answerJson(403, { error: 'the inventory of rack 7' })(response, _))
    const artifact = redirectTo(`${internal.url}/admin`)
    for (const answers of [{ artifact }, { artifact, detail: artifact }]) {
      const hub = await serveUntrustedHub(t, answers)
      const { exitCode, log } = await stage.deploy({ 'hub-url': hub.url })
      assert.equal(exitCode, 1)
      assert.doesNotMatch(JSON.stringify([log, hub.reports]), /rack 7/)
      assert.match(JSON.stringify(hub.reports), /the hub answered 403\. /)
    }
    assert.equal(internal.requests.length, 3)
  })

  it('does not flood the log', { skip: ONLY_IN_CI }, async t => {
    const hub = await serveUntrustedHub(t, { artifact: answerJson(410, { error: 'long '.repeat(100_000) }) })
    const { log } = await assertRefuses(stage, { code: 'artifact_unavailable', during: 'fetching' }, from(hub.url))
    assert.ok(log.length < 10_000)
  })
})
