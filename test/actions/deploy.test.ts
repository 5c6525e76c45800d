import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { buildDeployOutputs, type DeployInputs, readDeployInputs } from '../../src/actions/deploy.ts'
import { readProjectInputs } from '../../src/actions/project.ts'
import { readRollbackInputs } from '../../src/actions/rollback.ts'
import { DeploymentError } from '../../src/core/errors.ts'
import { HostConfigError, parseHostConfig } from '../../src/core/plan/host-config.ts'
import { PlanError, parsePlan } from '../../src/core/plan/plan.ts'
import type { DeployRequest } from '../../src/marketplace/deployment.ts'
import { inputError } from '../../src/runner/inputs.ts'
import { reportOf } from '../install/prepared-host.ts'
import { withInputs } from '../runner/action-environment.ts'

const DEFINITION: { inputs: Record<string, { required?: boolean; default?: string }> } = parse(
  readFileSync(join(import.meta.dirname, '../../action.yml'), 'utf8'),
)
const REQUIRED = {
  'hub-url': 'https://hub.example',
  slug: 'greeter',
  'api-key': 'the-api-key',
  'signing-secret': 'the signing secret',
  'install-plan': 'install.yaml',
  'project-root': '/srv/app',
}

function readInputs(more: Readonly<Record<string, string>> = {}): DeployInputs {
  return withInputs({ ...REQUIRED, ...more }, workspace => readDeployInputs(workspace)).result
}

function problemsWith(more: Readonly<Record<string, string>>): string[] {
  return readInputs(more).problems.map(problem => `${problem.kind} ${problem.message.split(' ')[0]}`)
}

describe('readDeployInputs', () => {
  it('requires exactly the inputs that action.yml calls required, and reports all missing ones at once', () => {
    const required = Object.keys(DEFINITION.inputs).filter(name => DEFINITION.inputs[name]?.required)
    const { problems } = withInputs({}, workspace => readDeployInputs(workspace)).result
    assert.deepEqual(problems.map(({ message }) => message.split(' ')[0]).toSorted(), required.toSorted())
    assert.ok(problems.every(({ kind }) => kind === 'missing'))
    assert.equal(inputError(problems).code, 'missing_input')
  })

  it('uses the defaults of action.yml for inputs that the runner leaves out', () => {
    const defaults = Object.fromEntries(
      Object.entries(DEFINITION.inputs).flatMap(([name, input]) =>
        input.default === undefined ? [] : [[name, input.default]],
      ),
    )
    assert.deepEqual(readInputs(), readInputs(defaults))
    assert.ok(Object.keys(defaults).length >= 11)
  })

  it('returns the default of every optional input', () => {
    const { request, connection } = readInputs()
    const { bases, plan: _, signingSecret, ...rest } = request
    assert.deepEqual(rest, {
      apiKey: 'the-api-key',
      pluginSecretKey: undefined,
      slug: 'greeter',
      pluginsDirectory: undefined,
      kind: 'plugin',
      version: 'latest',
      projectRoot: '/srv/app',
      hostId: hostname(),
      hostConfig: undefined,
      artifactSha256: undefined,
      keepPaths: ['.env', 'data'],
      settings: new Map(),
      allowTakeover: false,
      redeploy: false,
      allowSharedRoot: false,
      allowDowngrade: false,
      dryRun: false,
      checkOnly: false,
      keepSnapshots: 3,
      keepReports: 200,
      lockTimeoutMs: 900_000,
      downloadTimeoutMs: 900_000,
      maxArtifactBytes: 512 * 1024 ** 2,
      extraction: { maxExtractedBytes: 2 * 1024 ** 3, maxEntries: 100_000 },
    })
    assert.deepEqual(connection, { allowHttp: false, ca: undefined })
    assert.deepEqual(bases, {
      hub: 'https://hub.example',
      services: 'https://hub.example',
      deployments: 'https://hub.example',
    })
  })

  it('distinguishes an empty secret from a missing input', () => {
    const { problems } = readInputs({ 'api-key': '', slug: '' })
    assert.deepEqual(problems.map(({ message }) => /secret/.test(message)).toSorted(), [false, true])
  })

  const unreadable: Record<string, (path: string) => void> = {
    'a directory': path => mkdirSync(path),
    'a pipe without a writer': path => execFileSync('mkfifo', [path]),
    'a dangling link': path => symlinkSync('nowhere', path),
  }
  for (const [name, make] of Object.entries(unreadable)) {
    it(`refuses ${name} as a plan, without waiting and without quoting a system error`, () => {
      const { result } = withInputs({ ...REQUIRED, 'install-plan': 'plan.yaml' }, workspace => {
        make(join(workspace, 'plan.yaml'))
        return readDeployInputs(workspace)
      })
      assert.deepEqual(
        result.problems.map(({ kind }) => kind),
        ['invalid'],
      )
      assert.doesNotMatch(result.problems[0]?.message ?? '', /E[A-Z]{3,}|TypeError/)
    })
  }

  const ACTIONS = { deploy: readDeployInputs, rollback: readRollbackInputs, project: readProjectInputs }
  const WAYS: Record<string, (workspace: string) => { file: string; root?: string }> = {
    'lies there': () => ({ file: 'root/plugins/greeter/file.yaml' }),
    'is a link into it': workspace => {
      symlinkSync('root/plugins/greeter/file.yaml', join(workspace, 'link.yaml'))
      return { file: 'link.yaml' }
    },
    'leads through it': workspace => {
      symlinkSync(join(workspace, 'install.yaml'), join(workspace, 'root/link.yaml'))
      return { file: 'root/link.yaml' }
    },
    'lies in the directory that project-root links to': workspace => {
      symlinkSync('root', join(workspace, 'current'))
      return { file: join(workspace, 'root/plugins/greeter/file.yaml'), root: 'current' }
    },
  }
  for (const [action, read] of Object.entries(ACTIONS)) {
    for (const name of ['host-config', 'install-plan'].slice(0, action === 'project' ? 1 : 2)) {
      for (const [how, arrange] of Object.entries(WAYS)) {
        it(`refuses a ${name} of ${action} that ${how}, below project-root, and does not use it`, () => {
          const { result } = withInputs({ ...REQUIRED, 'install-plan': '', id: 'greeter' }, workspace => {
            mkdirSync(join(workspace, 'root/plugins/greeter'), { recursive: true })
            writeFileSync(join(workspace, 'root/plugins/greeter/file.yaml'), 'version: 1\n')
            const { file, root = 'root' } = arrange(workspace)
            process.env[`INPUT_${name.toUpperCase()}`] = file
            process.env['INPUT_PROJECT-ROOT'] = join(workspace, root)
            return read(workspace)
          })
          const problem = result.problems.find(({ input }) => input === name)
          assert.match(problem?.message ?? '', /which lies below project-root, where /)
          assert.equal(inputError([problem ?? assert.fail()]).code, 'invalid_input')
          const { plan, hostConfig } = { plan: undefined, ...result.request }
          assert.deepEqual([plan, hostConfig], [undefined, undefined])
        })
      }
    }
  }

  it('accepts a host config next to project-root, even if its path begins with the same letters', () => {
    const { result } = withInputs({ ...REQUIRED, 'host-config': 'root.yaml' }, workspace => {
      mkdirSync(join(workspace, 'root'))
      writeFileSync(join(workspace, 'root.yaml'), 'version: 1\n')
      process.env['INPUT_PROJECT-ROOT'] = join(workspace, 'root')
      return readDeployInputs(workspace)
    })
    assert.deepEqual(result.problems, [])
    assert.equal(result.request.hostConfig?.text, 'version: 1\n')
  })

  it('reads the plan relative to the workspace and keeps its name as written', () => {
    assert.deepEqual(readInputs().request.plan, { path: 'install.yaml', text: 'steps: []\n' })
  })

  it('accepts other base URLs, even with a path, and drops their trailing slashes', () => {
    const more = {
      'hub-url': 'https://hub.example/api/',
      'services-url': 'https://s.example/x//',
      'deployments-url': 'https://d.example',
    }
    assert.deepEqual(readInputs(more).request.bases, {
      hub: 'https://hub.example/api',
      services: 'https://s.example/x',
      deployments: 'https://d.example',
    })
  })

  it('reports every missing or malformed input at once', () => {
    const more = {
      slug: '',
      kind: 'theme',
      version: '../1',
      'keep-snapshots': '-1',
      'dry-run': 'yes',
      'host-config': 'none.yaml',
    }
    assert.deepEqual(problemsWith(more).toSorted(), [
      'invalid dry-run',
      'invalid host-config',
      'invalid keep-snapshots',
      'invalid kind',
      'invalid version',
      'missing slug',
    ])
    assert.equal(inputError(readInputs({ kind: 'theme' }).problems).code, 'invalid_input')
  })

  it('masks every line of every secret, and returns the secrets for redaction', () => {
    const secrets = { 'api-key': 'key-1', 'signing-secret': 'first\nsecond', 'plugin-secret-key': 'key-3' }
    const { result, output } = withInputs({ ...REQUIRED, ...secrets }, workspace => readDeployInputs(workspace))
    for (const secret of ['key-1', 'first', 'second', 'key-3']) assert.ok(output.includes(`::add-mask::${secret}`))
    assert.deepEqual(result.secrets, ['key-1', 'first\nsecond', 'key-3'])
  })

  it('keeps a secret unchanged except for one line break at the end', () => {
    const taken: [string, string][] = [
      [' a b\t', ' a b\t'],
      ['a\n', 'a'],
      ['a\r\n', 'a'],
      ['a\n\n', 'a\n'],
      ['\na ', '\na '],
    ]
    for (const [given, secret] of taken) {
      const { request } = readInputs({ 'signing-secret': given, 'plugin-secret-key': given })
      assert.deepEqual([request.signingSecret, request.pluginSecretKey], [secret, secret])
    }
    assert.equal(readInputs({ 'api-key': 'key\r\n' }).request.apiKey, 'key')
  })

  it('does not replace a malformed input with its default', () => {
    const malformed = {
      kind: 'theme',
      version: '../1',
      'host-id': 'a\tb',
      'dry-run': 'yes',
      'deployments-url': 'ftp://hub.example',
      'lock-timeout-seconds': 'x',
      'max-entries': '0',
    }
    const { kind, version, hostId, dryRun, bases, lockTimeoutMs, extraction } = readInputs(malformed).request
    const values = [kind, version, hostId, dryRun, bases, lockTimeoutMs, extraction]
    assert.ok(values.every(value => value === undefined))
  })

  for (const key of [' hunter22', 'hunter22 ', 'hunter 22', 'hunter\n22', 'hunter\r\n22', 'hunter22\n\n']) {
    it(`refuses an api-key with white space, without quoting it: ${JSON.stringify(key)}`, () => {
      const { problems, secrets, request } = readInputs({ 'api-key': key })
      assert.deepEqual(
        problems.map(problem => problem.kind),
        ['invalid'],
      )
      assert.doesNotMatch(JSON.stringify(problems), /hunter/)
      assert.equal(request.apiKey, undefined)
      assert.equal(secrets.length, 2)
    })
  }

  it('leaves no input in the environment that children inherit', () => {
    const every = Object.fromEntries(Object.keys(DEFINITION.inputs).map(name => [name, 'x']))
    const { result } = withInputs({ ...every, ...REQUIRED }, workspace => {
      readDeployInputs(workspace)
      return Object.keys(process.env).filter(name => name.startsWith('INPUT_'))
    })
    assert.deepEqual(result, [])
  })

  it('never quotes a secret in a problem', () => {
    for (const name of ['api-key', 'signing-secret', 'plugin-secret-key']) {
      const { problems } = readInputs({ [name]: 'hunter22', slug: 'Not A Slug' })
      assert.ok(!JSON.stringify(problems).includes('hunter22'))
    }
  })

  it('cleans the text that it quotes', () => {
    const [problem] = readInputs({ slug: 'x\r\n::error::y' }).problems
    assert.doesNotMatch(problem?.message ?? '', /[\r\n]/)
  })

  const bounds: Record<
    string,
    { good: Record<string, unknown>; bad: string[]; of: (request: DeployRequest) => unknown }
  > = {
    'dry-run': {
      good: { true: true, false: false, True: true, FALSE: false },
      bad: ['yes', '1', '0', 'on', 'truee', 'true false'],
      of: request => request.dryRun,
    },
    'allow-downgrade': { good: { true: true, false: false }, bad: ['no'], of: request => request.allowDowngrade },
    'keep-snapshots': {
      good: { '0': 0, '1000': 1000, '007': 7 },
      bad: ['-1', '1001', '1.5', '1e2', '0x1', 'three', '1 2'],
      of: request => request.keepSnapshots,
    },
    'lock-timeout-seconds': {
      good: { '0': 0, '86400': 86_400_000 },
      bad: ['86401', '-1', '0.5'],
      of: request => request.lockTimeoutMs,
    },
    'timeout-minutes': {
      good: { '0.5': 30_000, '1440': 86_400_000, '15': 900_000 },
      bad: ['0', '-1', '1441', 'Infinity', 'NaN', 'ten'],
      of: request => request.downloadTimeoutMs,
    },
    'max-artifact-bytes': {
      good: { '1': 1, '1099511627776': 1024 ** 4 },
      bad: ['0', '1099511627777', '512MiB', '99999999999999999999'],
      of: request => request.maxArtifactBytes,
    },
    'max-extracted-bytes': { good: { '1': 1 }, bad: ['0', '-5'], of: request => request.extraction.maxExtractedBytes },
    'max-entries': {
      good: { '1': 1, '10000000': 10_000_000 },
      bad: ['0', '10000001'],
      of: request => request.extraction.maxEntries,
    },
    slug: {
      good: { a: 'a', 'a.b_c-1': 'a.b_c-1', ['a'.repeat(128)]: 'a'.repeat(128) },
      bad: ['A', '-a', '.a', 'a/b', '..', 'a b', 'a'.repeat(129), 'é'],
      of: request => request.slug,
    },
    kind: { good: { plugin: 'plugin', service: 'service' }, bad: ['Plugin', 'services'], of: request => request.kind },
    version: {
      good: { latest: 'latest', '1.4.0': '1.4.0', 'v1+b_2-c': 'v1+b_2-c' },
      bad: ['../1', '-1', '1/2', '1 2', 'a'.repeat(129), '1?x=2'],
      of: request => request.version,
    },
    'artifact-sha256': {
      good: { ['AB'.repeat(32)]: 'ab'.repeat(32) },
      bad: ['ab', 'g'.repeat(64), 'ab'.repeat(33), `sha256:${'ab'.repeat(32)}`],
      of: request => request.artifactSha256,
    },
    'project-root': {
      good: {
        '/srv/app/': '/srv/app',
        '/srv/../srv//app': '/srv/app',
        [`/${'r'.repeat(3499)}`]: `/${'r'.repeat(3499)}`,
      },
      bad: [
        'srv/app',
        './x',
        '~/app',
        '/',
        '//',
        '/srv/..',
        '/srv/a\nb',
        '/srv/a\rb',
        '/srv/a\u2028b',
        '/srv/a\u001b[2J',
        `/${'r'.repeat(3500)}`,
        `/${'ö'.repeat(1750)}`,
      ],
      of: request => request.projectRoot,
    },
    'host-id': {
      good: { 'Web 1 (Kraków)': 'Web 1 (Kraków)', ['h'.repeat(255)]: 'h'.repeat(255) },
      bad: ['h'.repeat(256), 'a\u202eb', 'a\tb', 'a\nb', 'a\u2028b'],
      of: request => request.hostId,
    },
    'hub-url': {
      good: {},
      bad: [
        'hub.example',
        'ftp://hub.example',
        'https://u:p@hub.example',
        'https://hub.example?x=1',
        'https://hub.example/#a',
        'file:///etc',
      ],
      of: request => request.bases.hub,
    },
    'keep-paths': {
      good: {
        'one\ntwo/three': ['one', 'two/three'],
        ' data/ \r\n\n.env\n': ['data', '.env'],
        '.hidden\na..b': ['.hidden', 'a..b'],
        '.env, data/,\nuploads': ['.env', 'data', 'uploads'],
        './data\n././a/b//': ['data', 'a/b'],
        '-x, a b, größe, a=b, $x, ~y, {z}, .hub(1)': ['-x', 'a b', 'größe', 'a=b', '$x', '~y', '{z}', '.hub(1)'],
      },
      bad: [
        ...['[".env", "data"]', "[ 'data' ]", '"data"', "'data'", '`data`', '[id]/data', 'data]'],
        ...['- data', '!data', 'data # x', '#data', 'data/*', '*.log', 'dat?', 'data; .env', 'a\\b', 'a\tb'],
        ...['/', '/data', '..', '../x', 'a/../b', './..', 'a/./b', 'a//b', '.', './', './.'],
      ],
      of: request => request.keepPaths,
    },
    'allow-http': { good: {}, bad: ['maybe'], of: () => undefined },
    'install-plan': { good: {}, bad: ['none.yaml', '.'], of: () => undefined },
    'ca-file': { good: {}, bad: ['none.pem', 'install.yaml'], of: () => undefined },
  }
  for (const [name, { good, bad, of }] of Object.entries(bounds)) {
    for (const [text, value] of Object.entries(good)) {
      it(`reads ${name} ${JSON.stringify(text.slice(0, 30))}`, () => {
        const { request, problems } = readInputs({ [name]: text })
        assert.deepEqual(problems, [])
        assert.deepEqual(of(request as DeployRequest), value)
      })
    }
    for (const text of bad) {
      it(`refuses ${name} ${JSON.stringify(text.slice(0, 30))}`, () => {
        assert.deepEqual(problemsWith({ [name]: text }), [`invalid ${name}`])
      })
    }
  }

  for (const [name, bytes] of [
    ['is not UTF-8', Buffer.concat([Buffer.from('# '), Buffer.from([0xff, 0xfe]), Buffer.from('\nsteps: []\n')])],
    ['is larger than 256 KiB', Buffer.alloc(256 * 1024 + 1, 0x20)],
    ['is far larger, with a character that crosses the limit', Buffer.alloc(1024 * 1024, 'ü')],
  ] as const) {
    it(`leaves a plan or host config that ${name} to its parser, which refuses it at its first line`, () => {
      const { result } = withInputs({ ...REQUIRED, 'host-config': 'install.yaml' }, workspace => {
        writeFileSync(join(workspace, 'install.yaml'), bytes)
        return readDeployInputs(workspace)
      })
      assert.deepEqual(result.problems, [])
      const { plan, hostConfig } = result.request
      assert.ok((plan?.text.length ?? 0) <= 256 * 1024 + 1)
      const atStart = ({ problems }: PlanError | HostConfigError): boolean =>
        problems.length === 1 && problems[0]?.line === 1
      assert.throws(
        () => parsePlan(plan?.text ?? '', 'install.yaml'),
        error => error instanceof PlanError && atStart(error),
      )
      assert.throws(
        () => parseHostConfig(hostConfig?.text ?? '', 'host.yaml'),
        error => error instanceof HostConfigError && atStart(error),
      )
    })
  }
})

const ROOT = '/srv/app'

describe('buildDeployOutputs', () => {
  it('returns every output of action.yml and no others, even when nothing is known', () => {
    const { outputs } = parse(readFileSync(join(import.meta.dirname, '../../action.yml'), 'utf8'))
    const nothing = reportOf({ id: null, version: null, previous_version: null, artifact_sha256: null })
    for (const report of [reportOf(), nothing]) {
      assert.deepEqual(
        Object.keys(buildDeployOutputs({ report, plannedSteps: [] }, ROOT)).toSorted(),
        Object.keys(outputs).toSorted(),
      )
    }
    const {
      version,
      'previous-version': previous,
      'install-path': path,
    } = buildDeployOutputs({ report: nothing, plannedSteps: [] }, undefined)
    assert.deepEqual([version, previous, path], ['', '', ''])
  })

  for (const [kind, path] of [
    ['plugin', '/srv/app/plugins/greeter-2'],
    ['service', '/srv/app/extensions/greeter-2'],
  ] as const) {
    it(`names the installed directory of a ${kind}`, () => {
      const report = reportOf({ kind, id: 'greeter-2' })
      assert.equal(buildDeployOutputs({ report, plannedSteps: [] }, ROOT)['install-path'], path)
    })
  }

  it('leaves install-path empty when the id, the kind or the project root is not known', () => {
    for (const [report, root] of [
      [reportOf({ id: null }), ROOT],
      [reportOf({ kind: null }), ROOT],
      [reportOf(), undefined],
    ] as const) {
      assert.equal(buildDeployOutputs({ report, plannedSteps: [] }, root)['install-path'], '')
    }
  })

  it('reports a failure', () => {
    const error = { code: 'step_failed' as const, message: 'm', step: 'env' }
    const reported = { accepted: true, attempts: 1, error: null }
    const report = reportOf({ outcome: 'rolled_back', changed: false, error, reported })
    const outputs = buildDeployOutputs({ report, plannedSteps: [], error: new DeploymentError('network', 'm') }, ROOT)
    const { outcome, changed, 'failed-step': step, 'error-code': code } = outputs
    assert.deepEqual(
      [outcome, changed, step, code, outputs['reported']],
      ['rolled_back', 'false', 'env', 'step_failed', 'true'],
    )
  })
})
