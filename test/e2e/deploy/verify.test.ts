import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { buildZip, file } from '../../archives/zip-builder.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { commandsIn } from '../harness/evidence.ts'
import { onceInLog } from '../harness/processes.ts'
import { assertFails, assertVerifies, fileInputs, leftIn, NO_ARTIFACT } from '../harness/refusal.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, SERVICE_PLAN, type Stage } from '../harness/stage.ts'
import {
  type Answer,
  answerJson,
  forEver,
  openGate,
  pluginZip,
  serveArtifact,
  serveUntrustedHub,
  signatureOf,
  VERSION,
} from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: Stage
before(async () => {
  stage = await openStage()
  await stage.publish(VERSION, pluginFiles(VERSION))
})
after(() => stage.close())

describe('verify with a hub', () => {
  it('passes the served artifact, and returns the digest and the version that a deployment accepts', async () => {
    const { outputs, summary } = await assertVerifies(stage, { 'install-plan': 'install.yaml' })
    assert.equal(outputs['version'], VERSION)
    assert.match(summary, /^### ✅ greeter 2\.0\.0 is verified: /)
    const pinned = { version: outputs['version'] ?? '', 'artifact-sha256': outputs['artifact-sha256'] ?? '' }
    const deployed = await stage.deploy(pinned)
    assert.deepEqual([deployed.exitCode, deployed.outputs['artifact-sha256']], [0, outputs['artifact-sha256']])
  })

  it('names the version as the hub does, so that a deployment can request it', { skip: ONLY_IN_CI }, async () => {
    const inputs = { slug: 'with-v' }
    await stage.publish('v3.0.0', pluginFiles('3.0.0'), inputs)
    const { outputs } = await assertVerifies(stage, inputs)
    assert.equal(outputs['version'], 'v3.0.0')
    await assertVerifies(stage, { ...inputs, version: 'v3.0.0' })
    await assertFails(stage, { code: 'not_found' }, { ...inputs, version: '3.0.0' })
  })

  it('reports nothing, and sends the key only with the download', async t => {
    const hub = await serveUntrustedHub(t)
    await assertVerifies(stage, { 'hub-url': hub.url })
    assert.deepEqual(
      hub.requests.map(({ url, headers }) => [url, headers['x-api-key']]),
      [
        ['/plugins/greeter', undefined],
        ['/plugins/greeter/install?version=latest', stage.apiKey],
      ],
    )
  })

  it('does not help a hub that serves the hosts different bytes, even with a valid signature', {
    skip: ONLY_IN_CI,
  }, async t => {
    let count = 0
    const artifact: Answer = (response, request) => {
      const bytes = count++ === 0 ? pluginZip() : pluginZip(VERSION, [file('src/other.py')])
      serveArtifact(bytes)(response, request)
    }
    const hub = await serveUntrustedHub(t, { artifact })
    const { outputs } = await assertVerifies(stage, { 'hub-url': hub.url })
    const pin = { version: outputs['version'] ?? '', 'artifact-sha256': outputs['artifact-sha256'] ?? '' }
    const root = join(stage.folder, 'pinned-host')
    mkdirSync(root)
    const deployed = await stage.deploy({ 'hub-url': hub.url, 'project-root': root, ...pin })
    assert.deepEqual([deployed.exitCode, deployed.outputs['error-code']], [1, 'digest_mismatch'])
  })

  it('says that the signature is valid if only the pin does not match', async () => {
    const pin = { 'artifact-sha256': 'ab'.repeat(32) }
    const { log, summary } = await assertFails(stage, { code: 'digest_mismatch' }, pin)
    assert.match(log, /^::group::verifying_signature: valid, sha256 [0-9a-f]{8}…[0-9a-f]{4}; failed \(/m)
    assert.match(summary, /^\| Signature \| valid, but the digest is not the pinned one \|$/m)
  })

  it('passes a service, and says that its version and its repository are not signed', { skip: ONLY_IN_CI }, async t => {
    const headers = { 'x-service': 'clock@2.0.1', 'x-repo': 'dev/clock@v2.0.1' }
    const hub = await serveUntrustedHub(t, { artifact: serveArtifact(pluginZip(), headers) })
    stage.writePlan(SERVICE_PLAN)
    const inputs = { 'hub-url': hub.url, kind: 'service', slug: 'clock', 'install-plan': 'install.yaml' }
    const { outputs, summary, log } = await assertVerifies(stage, inputs)
    stage.writePlan(PLUGIN_PLAN)
    assert.deepEqual([outputs['version'], outputs['repo']], ['2.0.1', 'dev/clock@v2.0.1'])
    assert.match(commandsIn(log, 'notice').join('\n'), /lists 2\.0\.0 .* served 2\.0\.1/)
    assert.equal(summary.match(/from an unsigned header/g)?.length, 2)
  })

  it('checks the files that the plan uses from the artifact, and annotates a missing file at its line', async () => {
    stage.writePlan(`${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/none}\n`)
    const { log, outputs } = await assertFails(stage, { code: 'invalid_plan' }, { 'install-plan': 'install.yaml' })
    stage.writePlan(PLUGIN_PLAN)
    assert.match(commandsIn(log, 'error')[0] ?? '', /file=install\.yaml,line=7,col=5/)
    assert.equal(outputs['version'], VERSION)
  })

  it('sends the hub no request when the plan, or the host config for it, is wrong', async t => {
    const hub = await serveUntrustedHub(t)
    stage.writePlan(`${PLUGIN_PLAN}  - {id: up, action: restart, depends_on: [files]}\n`)
    const inputs = { 'hub-url': hub.url, 'install-plan': 'install.yaml' }
    await assertFails(stage, { code: 'invalid_plan' }, inputs)
    writeFileSync(join(stage.workspace.path, 'host.yaml'), 'version: 1\nsupervisor: none\n')
    await assertVerifies(stage, { ...inputs, 'host-config': 'host.yaml' })
    stage.writePlan(PLUGIN_PLAN)
    assert.equal(hub.requestsFor('artifact').length, 1)
  })

  it('refuses a plugin whose entry point no host could sign', async t => {
    const yaml = `version: "${VERSION}"\nexecution_mode: trusted\nentry_point: ../main.py\n`
    const bytes = buildZip([file('plugin.yaml', yaml), file('src/main.py')])
    const hub = await serveUntrustedHub(t, { artifact: serveArtifact(bytes) })
    const { summary } = await assertFails(stage, { code: 'not_a_plugin' }, { 'hub-url': hub.url })
    assert.match(summary, /^### ❌ greeter 2\.0\.0 is not verified: /)
  })

  it('writes nothing that a runner or a page would obey', { skip: ONLY_IN_CI }, async t => {
    const error = '::error::forged\r\n##[error]forged <img src=x> [l](javascript:alert(1)) @everyone'
    const headers = { 'x-plugin': 'greeter@::error::x', 'x-repo': 'dev/greeter@::set-output' }
    const lying = await serveUntrustedHub(t, { artifact: serveArtifact(pluginZip(), headers) })
    assert.equal((await assertVerifies(stage, { 'hub-url': lying.url })).outputs['repo'], '')
    const hub = await serveUntrustedHub(t, { artifact: answerJson(410, { error }) })
    const { log, summary } = await assertFails(stage, { code: 'artifact_unavailable' }, { 'hub-url': hub.url })
    assert.doesNotMatch(log, /##\[|\r/)
    const commands = log.split('\n').filter(line => /^\s*::/.test(line))
    for (const command of commands)
      assert.match(command, /^::(?:add-mask|group|endgroup|notice|error title=artifact_unavailable)::/)
    assert.doesNotMatch(summary, /<img|\]\(|@everyone/)
  })
})

describe('verify with a file', () => {
  const bytes = pluginZip('1.2.0')

  it('passes with a signature and without a hub, a key or a slug', async () => {
    const inputs = { ...fileInputs(stage, bytes, 'build/greeter.zip'), slug: '' }
    const { outputs, summary } = await assertVerifies(stage, inputs)
    assert.deepEqual([outputs['version'], outputs['artifact-size'], outputs['repo']], ['1.2.0', `${bytes.length}`, ''])
    assert.match(summary, /^### ✅ build\/greeter\.zip 1\.2\.0 is verified: /)
    const absolute = join(stage.workspace.path, 'build/greeter.zip')
    await assertVerifies(stage, { ...inputs, 'artifact-path': absolute, version: 'v1.2.0' })
  })

  it('checks the plan too, which requires the slug', { skip: ONLY_IN_CI }, async () => {
    const inputs = { ...fileInputs(stage, bytes), 'install-plan': 'install.yaml' }
    await assertVerifies(stage, inputs)
    await assertFails(stage, { code: 'missing_input' }, { ...inputs, slug: '' })
    await assertFails(stage, { code: 'invalid_plan' }, { ...inputs, slug: 'other' })
  })

  it('does not name a version of a service', { skip: ONLY_IN_CI }, async () => {
    const { outputs } = await assertVerifies(stage, { ...fileInputs(stage, bytes), kind: 'service' })
    assert.equal(outputs['version'], '')
  })

  const refused: Record<string, { code: ErrorCode; inputs: Record<string, string> }> = {
    'another secret': { code: 'signature_mismatch', inputs: { 'signing-secret': 'secret of somebody else' } },
    'a signature with runner commands': {
      code: 'invalid_signature_format',
      inputs: { signature: `${signatureOf(bytes)}\n::error::forged` },
    },
    'a hub in addition': { code: 'invalid_input', inputs: { 'hub-url': 'https://hub.example' } },
    'a host file': { code: 'invalid_input', inputs: { 'artifact-path': '/etc/passwd' } },
    'a symlink to a host file': { code: 'invalid_input', inputs: { 'artifact-path': 'link.zip' } },
    'a pipe without a writer': { code: 'invalid_input', inputs: { 'artifact-path': 'pipe.zip' } },
  }
  for (const [name, { code, inputs }] of sampled(Object.entries(refused), 3)) {
    it(`fails at once with ${name}`, async () => {
      const path = (place: string): string => join(stage.workspace.path, place)
      if (inputs['artifact-path'] === 'link.zip') symlinkSync('/etc/passwd', path('link.zip'))
      if (inputs['artifact-path'] === 'pipe.zip') execFileSync('mkfifo', [path('pipe.zip')])
      const { log } = await assertFails(stage, { code }, { ...fileInputs(stage, bytes), ...inputs })
      assert.doesNotMatch(log, /^::error::forged/m)
    })
  }

  it('refuses a huge file before it reads any of it', { skip: ONLY_IN_CI }, async () => {
    const inputs = fileInputs(stage, bytes, 'huge.zip')
    truncateSync(join(stage.workspace.path, 'huge.zip'), 2 ** 40)
    await assertFails(stage, { code: 'archive_too_large' }, inputs)
  })
})

describe('verify with only a plan', () => {
  const alone = { ...NO_ARTIFACT, 'install-plan': 'install.yaml' }

  it('needs no hub, no artifact and no secret, and verifies nothing', async () => {
    const { exitCode, outputs, summary } = await stage.verify(alone)
    assert.deepEqual([exitCode, outputs['verified'], outputs['error-code']], [0, '', ''])
    assert.equal(Object.values(outputs).join(''), '')
    assert.match(summary, /^### ✅ install\.yaml is valid; no artifact was checked\n/)
  })

  it('fails for each problem, at its line', async () => {
    stage.writePlan(`${PLUGIN_PLAN}  - {id: shell, action: run}\n  - {id: again, action: prepare, command: reboot}\n`)
    const { log, summary } = await assertFails(stage, { code: 'invalid_plan', verified: '', annotations: 2 }, alone)
    stage.writePlan(PLUGIN_PLAN)
    const places = commandsIn(log, 'error').map(line => /file=(.*?),line=(\d+),col=(\d+)/.exec(line)?.slice(1, 4))
    assert.deepEqual(places, [
      ['install.yaml', '7', '25'],
      ['install.yaml', '8', '34'],
    ])
    assert.equal(summary.match(/^- <code>install/gm)?.length, 2)
  })

  it('lists the problems of two files one after the other, both of form and of content', async () => {
    const mistakes = '  - {id: up, action: restart, plugin: other, timeout: 5s}\n'
    stage.writePlan(`${PLUGIN_PLAN.replace('project_id: greeter', 'project_id: greet')}${mistakes}`)
    writeFileSync(join(stage.workspace.path, 'host.yaml'), 'version: 1\nsupervisor: magic\n')
    const refusal = { code: 'invalid_plan', verified: '', annotations: 4 } as const
    const { log, summary } = await assertFails(stage, refusal, { ...alone, 'host-config': 'host.yaml' })
    stage.writePlan(PLUGIN_PLAN)
    assert.deepEqual(
      commandsIn(log, 'error').map(line => /title=(\w+),file=([\w.]+),line=(\d+)/.exec(line)?.slice(1)),
      [
        ['invalid_plan', 'install.yaml', '2'],
        ['invalid_plan', 'install.yaml', '7'],
        ['invalid_plan', 'install.yaml', '7'],
        ['invalid_host_config', 'host.yaml', '2'],
      ],
    )
    assert.match(summary, /install\.yaml:7:\d+<\/code> .*\n- <code>host\.yaml:2:/)
  })

  it('calls the inputs invalid, and not the plan, if an input is missing', async () => {
    const cases = { '': { ...alone, slug: '' }, false: { ...alone, 'install-plan': '', slug: '' } }
    for (const [verified, inputs] of Object.entries(cases)) {
      const { summary } = await assertFails(stage, { code: 'missing_input', verified }, inputs)
      assert.match(summary, /^### ❌ The inputs are not valid; no artifact was checked\n/)
    }
  })

  it('lists every problem of a file with many, and annotates as many as the runner shows', async () => {
    const steps = Array.from({ length: 14 }, (_, at) => `  - {id: s${at}, action: run}\n`)
    stage.writePlan(`${PLUGIN_PLAN}${steps.join('')}`)
    const { log } = await assertFails(stage, { code: 'invalid_plan', verified: '', annotations: 10 }, alone)
    stage.writePlan(PLUGIN_PLAN)
    assert.deepEqual(
      log.match(/^install\.yaml:\d+:\d+(?=: step)/gm),
      [17, 18, 19, 20].map(line => `install.yaml:${line}:23`),
    )
  })

  it('refuses at once a plan that costs too much to read, and reads a plan that is only long', async () => {
    const comment = `# ${'x'.repeat(97)}\n`.repeat(2550)
    stage.writePlan(`${PLUGIN_PLAN}${comment}`)
    assert.equal((await stage.verify(alone)).exitCode, 0)
    const aliases = `a: &a [${'x,'.repeat(9)}]\nb: &b [${'*a,'.repeat(9)}]\nc: [${'*b,'.repeat(9)}]\n`
    const bombs = {
      aliases,
      nesting: '['.repeat(200_000),
      length: `${PLUGIN_PLAN}${comment.repeat(2)}`,
      keys: '? '.repeat(90_000),
    }
    for (const [name, text] of sampled(Object.entries(bombs), 2)) {
      stage.writePlan(text)
      const { log } = await stage.verify(alone)
      assert.match(log, /^::error title=invalid_plan,file=install\.yaml,/m, name)
    }
    stage.writePlan(PLUGIN_PLAN)
  })

  it('checks a host config for the default plan, which it shows', async () => {
    const inputs = { ...NO_ARTIFACT, 'host-config': 'host.yaml' }
    writeFileSync(join(stage.workspace.path, 'host.yaml'), 'version: 1\nsupervisor: docker\n')
    const { exitCode, log, summary } = await stage.verify(inputs)
    assert.equal(exitCode, 0, log)
    assert.match(log, /^- \{id: up, action: restart, plugin: "greeter"/m)
    assert.match(summary, /the default plan, 4 steps/)
    const slow = 'version: 1\nplugins: {greeter: {healthcheck: {tcp: "h:1", stable_for: 10m}}}\n'
    writeFileSync(join(stage.workspace.path, 'host.yaml'), slow)
    await assertFails(stage, { code: 'invalid_plan', verified: '' }, inputs)
  })

  it('checks a host config, with a plan and without', { skip: ONLY_IN_CI }, async () => {
    writeFileSync(join(stage.workspace.path, 'bad-host.yaml'), 'version: 1\nsupervisor: magic\n')
    const refusal = { code: 'invalid_host_config', verified: '' } as const
    for (const inputs of [alone, { ...NO_ARTIFACT, slug: '' }]) {
      const { log } = await assertFails(stage, refusal, { ...inputs, 'host-config': 'bad-host.yaml' })
      assert.match(commandsIn(log, 'error')[0] ?? '', /file=bad-host\.yaml,line=2,col=13/)
    }
  })

  it('fails if an input that is only for the check of an artifact is set', async () => {
    const { log } = await assertFails(stage, { code: 'missing_input' }, { ...alone, 'hub-url': 'https://hub.example' })
    assert.match(log, /^::error title=missing_input::A check of what a hub serves needs .* leave out hub-url\. /m)
    await assertFails(stage, { code: 'missing_input' }, { ...alone, 'artifact-sha256': 'ab'.repeat(32) })
  })
})

describe('a verify step that is stopped', () => {
  const many = Array.from({ length: 12_000 }, (_, index) => file(`src/${index % 100}/${index}.py`, `# ${index}\n`))
  const large = pluginZip(VERSION, many)

  it('ends at once when it is cancelled while the hub hangs', async t => {
    const hub = await openGate(t, stage.hub.url, route => (route === 'artifact' ? forEver() : undefined))
    const cancel = onceInLog('as its latest version', pid => process.kill(pid, 'SIGINT'))
    await assertFails(stage, { code: 'cancelled' }, { 'hub-url': hub.url }, cancel)
  })

  it('leaves no files after its post step when it is cancelled while it extracts', {
    skip: ONLY_IN_CI,
  }, async t => {
    const hub = await serveUntrustedHub(t, { artifact: serveArtifact(large) })
    const cancel = onceInLog('::group::extracting', pid => process.kill(pid, 'SIGINT'))
    const { outputs } = await assertFails(stage, { code: 'cancelled' }, { 'hub-url': hub.url }, cancel)
    assert.match(outputs['artifact-sha256'] ?? '', /^[0-9a-f]{64}$/)
  })

  it('has already set verified to false when it is killed, and leaves its files to its post step', async t => {
    const hub = await serveUntrustedHub(t, { artifact: serveArtifact(large) })
    const kill = onceInLog('::group::extracting', pid => process.kill(pid, 'SIGKILL'))
    const killed = await stage.verify({ 'hub-url': hub.url }, kill)
    assert.deepEqual(
      [killed.signal, killed.outputs['verified'], killed.outputs['error-code'], killed.outputs['artifact-sha256']],
      ['SIGKILL', 'false', 'interrupted', ''],
    )
    assert.equal(leftIn(stage).length, 1)
    const post = await stage.verify({}, { phase: 'post', state: killed.state })
    assert.deepEqual([post.exitCode, post.log, leftIn(stage)], [0, '', []])
  })

  it('removes no other files in its post step', { skip: ONLY_IN_CI }, async () => {
    const { state } = await stage.verify()
    assert.equal(state['folder'], '')
    for (const folder of [stage.workspace.path, join(stage.workspace.temp, 'mine'), '', '/', '..']) {
      mkdirSync(join(stage.workspace.temp, 'mine'), { recursive: true })
      const post = await stage.verify({}, { phase: 'post', state: { folder } })
      assert.deepEqual([post.exitCode, post.log], [0, ''])
    }
    assert.ok(readdirSync(stage.workspace.path).includes('install.yaml'))
    assert.deepEqual(leftIn(stage), ['mine'])
  })
})
