import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeployError, type ErrorCode } from '../../src/core/errors.ts'
import { SourceError } from '../../src/core/yaml/problems.ts'
import { deployArtifact } from '../../src/marketplace/deploy.ts'
import type { DeployRequest } from '../../src/marketplace/deployment.ts'
import { checkRelease, type GateFiles, type GateRequest, readLocalArtifact } from '../../src/marketplace/gate.ts'
import { ACCEPTED_ZIPS } from '../archives/accepted-zips.ts'
import { HOSTILE_LIMITS, HOSTILE_ZIPS } from '../archives/hostile-zips.ts'
import { buildZip, file, symlink } from '../archives/zip-builder.ts'
import { timesMoveOn } from '../clocks.ts'
import { LIES, REFUSED_PLANS, WRONG_PLUGINS, WRONGLY_SIGNED } from '../e2e/harness/refusal.ts'
import { PLUGIN_PLAN, SERVICE_PLAN, SIGNING_SECRET } from '../e2e/harness/stage.ts'
import {
  type Answers,
  answerJson,
  pluginZip,
  serveArtifact,
  serveUntrustedHub,
  signatureOf,
  VERSION,
} from '../e2e/harness/untrusted-hub.ts'
import { byExtent } from '../extent.ts'
import { temporaryDirectory } from '../folders.ts'
import { toolsOf } from '../install/prepared-deployment.ts'
import { collectLog } from '../install/prepared-host.ts'
import { createTestedWire } from '../net/tested-wire.ts'
import { deployRequest } from './deploy-request.ts'

type Case = { readonly answers?: Partial<Answers>; readonly request?: Partial<DeployRequest> }
/**
 * Only some of the archives are tried here (see `oneIn`), because the gate uses the deployment's own extraction, whose
 * tests try all archives.
 */
const NTH = byExtent({ sample: 40, ci: 3, full: 1 })
const LIMITS = { maxArtifactBytes: 2 ** 24, extraction: HOSTILE_LIMITS }
const LARGE_LIMITS = { ...LIMITS, extraction: { maxExtractedBytes: 2 ** 24, maxEntries: 1000 } }
const SERVICE = { kind: 'service', slug: 'clock', plan: planOf(SERVICE_PLAN) } as const

/**
 * Picks every `nth` item. Also picks all items whose fault only their data shows, because a gate that read only
 * listings would accept them.
 */
function oneIn<Item extends object>(nth: number, items: readonly Item[]): Item[] {
  return items.filter((item, index) => 'onlyWhileExtracting' in item || index % nth === 0)
}

function planOf(text: string): DeployRequest['plan'] {
  return { path: 'install.yaml', text }
}

/** A hub, an empty host, and the request and the tools of a run that deploys from the hub to the host. */
async function scene(t: TestContext, { answers, request }: Case) {
  const folder = temporaryDirectory(t)
  const [projectRoot, temporaryFolder] = [join(folder, 'host'), join(folder, 'temp')]
  for (const path of [projectRoot, temporaryFolder]) mkdirSync(path, { mode: 0o755 })
  const hub = await serveUntrustedHub(t, answers)
  const wire = createTestedWire()
  const asked = deployRequest({
    hub: hub.url,
    projectRoot,
    plan: planOf(PLUGIN_PLAN),
    signingSecret: SIGNING_SECRET,
    ...LIMITS,
    ...request,
  })
  const tools = toolsOf({ wires: { wire, reportWire: wire }, log: collectLog() })
  return { asked, tools: { ...tools, wire, runner: { ...tools.runner, temporaryFolder }, onFolder: () => {} } }
}

type Scene = Awaited<ReturnType<typeof scene>>

/** The request to the gate for the same release. */
function gateRequest({ asked }: Scene): GateRequest {
  const { slug, bases, apiKey } = asked
  return { files: filesOf(asked), artifact: { ...asked, source: { bases, slug, apiKey } } }
}

function filesOf({ hostConfig, ...files }: DeployRequest): GateFiles {
  return { ...files, hostConfigs: hostConfig === undefined ? [] : [hostConfig] }
}

/** The gate's code for a release, empty if it passes. The gate must leave nothing in the runner's folder. */
async function gateCode(scene: Scene): Promise<string> {
  const { error } = await checkRelease(gateRequest(scene), scene.tools)
  assert.deepEqual(readdirSync(scene.tools.runner.temporaryFolder), [])
  // A gate never installs anything, so its message must not say that nothing was installed.
  assert.doesNotMatch(error?.message ?? '', /nothing was installed/i)
  return error?.code ?? ''
}

/** The code with which a deployment of the same release ends. */
async function deployCode({ asked, tools }: Scene, more: Partial<DeployRequest> = {}): Promise<string> {
  return (await deployArtifact({ ...asked, ...more }, tools)).error?.code ?? ''
}

/**
 * Asserts that a deployment refuses the release before it touches the host, and that the gate refuses it with the same
 * code.
 */
async function assertBothRefuse(t: TestContext, code: ErrorCode, refused: Case): Promise<void> {
  const both = await scene(t, refused)
  assert.deepEqual([await deployCode(both, { dryRun: true }), await gateCode(both)], [code, code])
}

describe('the gate refuses, with the same code as a deployment that has not yet touched the host,', () => {
  for (const [name, [answers, code]] of Object.entries(LIES)) {
    it(`a hub that ${name}`, async t => await assertBothRefuse(t, code, { answers }))
  }

  for (const [name, [bytes, header, code]] of Object.entries(WRONGLY_SIGNED)) {
    it(`an artifact ${name}`, async t => {
      await assertBothRefuse(t, code, { answers: { artifact: serveArtifact(bytes, { 'x-signature': header }) } })
    })
  }

  for (const [name, [files, code]] of Object.entries(WRONG_PLUGINS)) {
    it(`an artifact that ${name}`, async t => {
      const bytes = buildZip(Object.entries(files).map(([path, text]) => file(path, text)))
      const artifact = serveArtifact(bytes, { 'x-plugin': `greeter@${VERSION}` })
      await assertBothRefuse(t, code, { answers: { artifact } })
    })
  }

  for (const [name, { plan }] of Object.entries(REFUSED_PLANS)) {
    it(`a plan that ${name}`, async t => await assertBothRefuse(t, 'invalid_plan', { request: { plan: planOf(plan) } }))
  }

  it('a plan whose template is the file for the settings that the host framework injects', async t => {
    const yaml = `version: "${VERSION}"\nenvconfiguration: {inject: true, env_file: app.env}\n`
    const plan = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/app.env, depends_on: [files]}\n`
    const artifact = serveArtifact(buildZip([file('plugin.yaml', yaml), file('app.env', 'A=1\n')]))
    await assertBothRefuse(t, 'invalid_plan', { answers: { artifact }, request: { plan: planOf(plan) } })
  })

  const asked: Record<string, [ErrorCode, Partial<DeployRequest>]> = {
    'another digest': ['digest_mismatch', { artifactSha256: 'ab'.repeat(32) }],
    'another version': ['version_mismatch', { version: '2.0.1' }],
    'a lower limit of bytes': ['archive_too_large', { maxArtifactBytes: 10 }],
    'a lower limit of extracted bytes': ['archive_too_large', { extraction: { maxExtractedBytes: 1, maxEntries: 50 } }],
    'a lower limit of entries': ['archive_too_large', { extraction: { maxExtractedBytes: 10_000, maxEntries: 1 } }],
    'a host config of another version': [
      'invalid_host_config',
      { hostConfig: { path: 'host.yaml', text: 'version: 2\n' } },
    ],
    'a template in a kept path': [
      'invalid_plan',
      {
        keepPaths: ['src'],
        plan: planOf(
          `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/src/main.py, depends_on: [files]}\n`,
        ),
      },
    ],
  }
  for (const [name, [code, request]] of Object.entries(asked)) {
    it(`a request with ${name}`, async t => await assertBothRefuse(t, code, { request }))
  }

  it('a trusted plugin that no host can sign', async t => {
    const yaml = `version: "${VERSION}"\nexecution_mode: trusted\nentry_point: ../main.py\n`
    const bytes = buildZip([file('plugin.yaml', yaml), file('src/main.py')])
    const request = { pluginSecretKey: 'key of the framework' }
    await assertBothRefuse(t, 'not_a_plugin', { answers: { artifact: serveArtifact(bytes) }, request })
  })

  it('a plugin.yaml that is a dangling symlink', async t => {
    const bytes = buildZip([symlink('plugin.yaml', 'src/none.yaml'), file('src/main.py')])
    await assertBothRefuse(t, 'not_a_plugin', { answers: { artifact: serveArtifact(bytes) } })
  })

  const hostile = HOSTILE_ZIPS.filter(({ platform }) => platform === undefined || platform === process.platform)
  for (const { name, bytes } of oneIn(NTH, hostile)) {
    it(`an archive: ${name}`, async t => {
      const code = name.split('--')[0] as ErrorCode
      await assertBothRefuse(t, code, { answers: { artifact: serveArtifact(bytes()) }, request: SERVICE })
    })
  }
})

describe('the gate of a file', () => {
  const bytes = pluginZip()
  const signature = signatureOf(bytes)

  /** The gate's findings about a file with these bytes. */
  async function checkFile(t: TestContext, more: { signature?: string; path?: string } & Partial<DeployRequest> = {}) {
    const { asked, tools } = await scene(t, { request: more })
    const workspace = temporaryDirectory(t)
    writeFileSync(join(workspace, 'greeter.zip'), bytes)
    symlinkSync('greeter.zip', join(workspace, 'link.zip'))
    const source = { workspace, path: more.path ?? 'greeter.zip', signature: more.signature ?? signature }
    const result = await checkRelease({ files: filesOf(asked), artifact: { ...asked, source } }, tools)
    assert.deepEqual(readdirSync(tools.runner.temporaryFolder), [])
    return result
  }

  it('passes, even if the version is named with a leading v', async t => {
    const { facts, error } = await checkFile(t, { version: `v${VERSION}` })
    assert.deepEqual([error, facts.version, facts.size], [undefined, `v${VERSION}`, bytes.length])
    assert.equal((await checkFile(t)).facts.version, VERSION)
  })

  const refused: Record<string, [ErrorCode, Parameters<typeof checkFile>[1]]> = {
    'a signature made with another secret': ['signature_mismatch', { signature: signatureOf(bytes, 'another secret') }],
    'another secret': ['signature_mismatch', { signingSecret: 'another secret' }],
    'another algorithm': ['invalid_signature_format', { signature: signature.replace('sha256', 'md5') }],
    'a bare digest': ['invalid_signature_format', { signature: signature.slice(-64) }],
    'another pin': ['digest_mismatch', { artifactSha256: 'ab'.repeat(32) }],
    'another version': ['version_mismatch', { version: '2.0.1' }],
    'a lower limit': ['archive_too_large', { maxArtifactBytes: 10 }],
    'a path to the folder above': ['invalid_input', { path: '../greeter.zip' }],
    'the workspace': ['invalid_input', { path: '.' }],
    'a missing path': ['invalid_input', { path: 'none.zip' }],
    'a symlink': ['invalid_input', { path: 'link.zip' }],
  }
  for (const [name, [code, more]] of Object.entries(refused)) {
    it(`fails with ${name}`, async t => assert.equal((await checkFile(t, more)).error?.code, code))
  }

  it('gives no advice about a key or a hub, because a file has neither', async t => {
    const { error } = await checkFile(t, { signingSecret: 'another secret' })
    assert.match(error?.message ?? '', / not signed with this signing-secret, .* for this very file\. /)
    assert.doesNotMatch(error?.message ?? '', /api-key|hub/)
  })
})

describe('the gate of several host configs', () => {
  const RESTART = {
    path: 'install.yaml',
    text: `${PLUGIN_PLAN}  - {id: up, action: restart, plugin: greeter, depends_on: [files]}\n`,
  }
  const config = (name: string, text: string) => ({ path: `${name}.yaml`, text: `version: 1\n${text}` })
  const good = (name: string) => config(name, 'supervisor: none\n')

  async function checkFiles(t: TestContext, files: Partial<GateFiles>) {
    const { asked, tools } = await scene(t, {})
    const { facts, error } = await checkRelease({ files: { ...filesOf(asked), ...files }, artifact: undefined }, tools)
    const found = error instanceof SourceError ? error.problems : []
    const problems = found.map(({ file, line, message }) => `${file}:${line} ${message}`)
    return { facts, code: error?.code, problems }
  }

  it('passes if each of them fits the plan', async t => {
    const { facts, code } = await checkFiles(t, { plan: RESTART, hostConfigs: [good('app-1'), good('app-2')] })
    assert.deepEqual([code, facts.steps], [undefined, 3])
  })

  it('names each file with a mistake, wherever it is in the list', async t => {
    const bad = (name: string) => config(name, 'supervisor: magic\n')
    const hostConfigs = [bad('app-1'), good('app-2'), bad('app-3')]
    for (const files of [{ plan: RESTART }, { plan: undefined }, { plan: undefined, slug: undefined }]) {
      const { code, problems } = await checkFiles(t, { ...files, hostConfigs })
      assert.equal(code, 'invalid_host_config')
      assert.deepEqual(
        problems.map(problem => problem.split(' ')[0]),
        ['app-1.yaml:2', 'app-3.yaml:2'],
      )
    }
  })

  it('names the host config that lacks what the plan needs', async t => {
    const { code, problems } = await checkFiles(t, { plan: RESTART, hostConfigs: [good('app-1'), config('app-2', '')] })
    assert.deepEqual([code, problems.length], ['invalid_plan', 1])
    assert.match(problems[0] ?? '', /^install\.yaml:\d+ .* needs a supervisor .*, but app-2\.yaml has no such entry$/)
  })

  it('lists a mistake in the plan once, next to the mistakes in the host configs', async t => {
    const plan = { ...RESTART, text: RESTART.text.replace('restart', 'retsart') }
    const hostConfigs = [good('app-1'), good('app-2'), config('app-3', 'supervisr: none\n')]
    const { code, problems } = await checkFiles(t, { plan, hostConfigs })
    assert.equal(code, 'invalid_plan')
    assert.deepEqual(
      problems.map(problem => problem.split(':')[0]),
      ['install.yaml', 'app-3.yaml'],
    )
  })
})

describe('the gate accepts, and a deployment installs,', () => {
  for (const { name, bytes } of oneIn(NTH, ACCEPTED_ZIPS)) {
    it(`an archive: ${name}`, async t => {
      const request = { ...SERVICE, ...LARGE_LIMITS }
      const both = await scene(t, { answers: { artifact: serveArtifact(bytes) }, request })
      assert.deepEqual([await gateCode(both), await deployCode(both)], ['', ''])
    })
  }

  it('a plugin whose plugin.yaml is a symlink to another file', async t => {
    const yaml = file('src/plugin.yaml', `version: "${VERSION}"\n`)
    const bytes = buildZip([symlink('plugin.yaml', 'src/plugin.yaml'), yaml, file('src/main.py')])
    const both = await scene(t, { answers: { artifact: serveArtifact(bytes) } })
    assert.deepEqual([await gateCode(both), await deployCode(both)], ['', ''])
  })

  it('a plugin for another version of the host framework, with a warning', async t => {
    const bytes = buildZip([file('plugin.yaml', `version: "${VERSION}"\nframework_version: ">=3"\n`)])
    const hostConfig = { path: 'host.yaml', text: 'version: 1\nframework: {version: "2.0"}\n' }
    const both = await scene(t, { answers: { artifact: serveArtifact(bytes) }, request: { hostConfig } })
    const log = collectLog()
    const { error } = await checkRelease(gateRequest(both), { ...both.tools, log })
    assert.equal(error, undefined)
    assert.match(
      log.lines.join('\n'),
      /^warning .* may not load this plugin: its framework_version is ">=3", but .* 2\.0\.$/m,
    )
  })

  it('a plugin that needs a template, a host config and a signature', async t => {
    const plan = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
  - {id: up, action: restart, plugin: greeter, depends_on: [env]}\n`
    const yaml = `version: "${VERSION}"\nexecution_mode: Trusted\n`
    const bytes = buildZip([file('plugin.yaml', yaml), file('src/main.py'), file('.env.template', 'A=1\n')])
    const request = {
      plan: planOf(plan),
      hostConfig: { path: 'host.yaml', text: 'version: 1\nsupervisor: none\n' },
      pluginSecretKey: 'key of the framework',
    }
    const both = await scene(t, { answers: { artifact: serveArtifact(bytes) }, request })
    assert.deepEqual([await gateCode(both), await deployCode(both)], ['', ''])
  })

  for (const listed of [answerJson(200, { latest_version: '9.0.0' }), answerJson(404, {})]) {
    it('the version that the hub serves as latest, whatever it lists', async t => {
      const artifact = serveArtifact(pluginZip(), { 'x-plugin': `greeter@v${VERSION}` })
      const both = await scene(t, { answers: { artifact, detail: listed } })
      const { facts, error } = await checkRelease(gateRequest(both), both.tools)
      assert.deepEqual([error, facts.version, facts.versionSource], [undefined, `v${VERSION}`, 'plugin.yaml'])
      assert.equal(await deployCode(both, { artifactSha256: facts.sha256 }), '')
    })
  }

  it('the bytes with the digest that the gate returned', async t => {
    const both = await scene(t, { answers: { artifact: serveArtifact(pluginZip()) } })
    const { facts } = await checkRelease(gateRequest(both), both.tools)
    const pinned = { version: facts.version ?? '', artifactSha256: facts.sha256 }
    assert.deepEqual([facts.version, facts.versionSource], [VERSION, 'plugin.yaml'])
    assert.equal(await deployCode(both, { ...pinned, artifactSha256: 'ab'.repeat(32) }), 'digest_mismatch')
    assert.equal(await deployCode(both, pinned), '')
  })
})

const BYTES = Buffer.alloc(600 * 1024, 'artifact ')
const SECRET = 'secret'

/** Reads an artifact. Calls `onPiece` before the first piece is read, and after each piece. */
async function readWhile(t: TestContext, onPiece: (path: string) => void, more: { signal?: AbortSignal } = {}) {
  const workspace = temporaryDirectory(t)
  const path = join(workspace, 'greeter.zip')
  writeFileSync(path, BYTES)
  utimesSync(path, 1, 1)
  await timesMoveOn(workspace)
  const copy = join(mkdtempSync(join(workspace, 'copy-')), 'copy')
  const fd = openSync(copy, 'wx+')
  const now = (): Date => {
    onPiece(path)
    return new Date()
  }
  try {
    const source = { workspace, path: 'greeter.zip', signature: signatureOf(BYTES, SECRET) }
    const request = { signingSecret: SECRET, maxArtifactBytes: BYTES.length }
    const served = await readLocalArtifact({ source, request, tools: toolsOf({ now, ...more }), fd })
    return { served, copied: readFileSync(copy) }
  } finally {
    closeSync(fd)
  }
}

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeployError && error.code === code
}

describe('readLocalArtifact', () => {
  it('copies the file and computes its digest and HMAC', async t => {
    const { served, copied } = await readWhile(t, () => {})
    assert.ok(copied.equals(BYTES))
    assert.equal(served.artifact.size, BYTES.length)
    assert.equal(served.artifact.sha256, createHash('sha256').update(BYTES).digest('hex'))
    assert.equal(`hmac_sha256:${served.hmac.toString('hex')}`, served.signatureHeader)
  })

  const changes: Record<string, (path: string) => void> = {
    'gets longer': path => appendFileSync(path, 'x'),
    'gets shorter': path => truncateSync(path, 10),
    'is emptied': path => truncateSync(path, 0),
    'gets other bytes under its old modification time': path => {
      writeFileSync(path, Buffer.alloc(BYTES.length, 'other '))
      utimesSync(path, 1, 1)
    },
  }
  for (const [name, change] of Object.entries(changes)) {
    it(`refuses a file that ${name} while it is read`, async t => {
      let pieces = 0
      const onPiece = (path: string): void => {
        if (pieces++ === 1) change(path)
      }
      await assert.rejects(readWhile(t, onPiece), refusedWith('invalid_input'))
      assert.ok(pieces > 1)
    })
  }

  it('ends at once when it is cancelled', async t => {
    const cancel = new AbortController()
    const read = readWhile(t, () => cancel.abort(), { signal: cancel.signal })
    await assert.rejects(read, { name: 'AbortError' })
  })
})
