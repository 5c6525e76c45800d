import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { buildVerifyOutputs, readVerifyInputs, type VerifyInputs } from '../../src/actions/verify.ts'
import { DeploymentError } from '../../src/core/errors.ts'
import { mountFoldingDisk, whyNoFoldingDisk } from '../e2e/harness/folding-disk.ts'
import { writeTree } from '../folders.ts'
import { withInputs } from '../runner/action-environment.ts'

const DEFINITION: { inputs: Record<string, { default?: string }>; outputs: Record<string, object> } = parse(
  readFileSync(join(import.meta.dirname, '../../verify/action.yml'), 'utf8'),
)
const DEFAULTS = Object.fromEntries(
  Object.entries(DEFINITION.inputs).map(([name, input]) => [name, input.default ?? '']),
)
const SECRETS = { 'api-key': 'the-api-key', 'signing-secret': 'the signing secret' }
const HUB = { 'hub-url': 'https://hub.example', slug: 'greeter', ...SECRETS }
const FILE = {
  'artifact-path': 'greeter.zip',
  signature: `hmac_sha256:${'ab'.repeat(32)}`,
  'signing-secret': 'the signing secret',
}
const PLAN = { slug: 'greeter', 'install-plan': 'install.yaml' }

function readInputs(given: Record<string, string>): VerifyInputs {
  return withInputs({ ...DEFAULTS, ...given }, workspace => readVerifyInputs(workspace)).result
}

/** The problems of these inputs, each as its kind and the name of its input. */
function problemsOf(given: Record<string, string>): string[] {
  return readInputs(given).problems.map(({ kind, message }) => `${kind} ${message.split(' ')[0]}`)
}

describe('readVerifyInputs', () => {
  const complete: Record<string, [Record<string, string>, VerifyInputs['mode']]> = {
    'a hub': [HUB, 'hub'],
    'a hub and a plan': [{ ...HUB, ...PLAN }, 'hub'],
    'a file': [FILE, 'file'],
    'a file and a plan': [{ ...FILE, ...PLAN }, 'file'],
    'a plan alone': [PLAN, 'none'],
    'a plan and a host config': [{ ...PLAN, 'host-config': 'install.yaml' }, 'none'],
    'a host config alone': [{ 'host-config': 'install.yaml' }, 'none'],
    'a plan, and defaults that the workflow repeats': [{ ...PLAN, version: 'latest', 'allow-http': 'False' }, 'none'],
    'a plan of a service, and its keep-paths': [{ ...PLAN, kind: 'service', 'keep-paths': 'data' }, 'none'],
  }
  for (const [name, [given, mode]] of Object.entries(complete)) {
    it(`accepts ${name}`, () => {
      assert.deepEqual(problemsOf(given), [])
      const { request, ...inputs } = readInputs(given)
      assert.equal(inputs.mode, mode)
      assert.equal(request.artifact === undefined, mode === 'none')
    })
  }

  it('reads each host config that it lists, one per line, once', () => {
    const lines = '\n install.yaml \r\n\nno-such.yaml\ninstall.yaml\n'
    const { request, problems } = readInputs({ ...PLAN, 'host-config': lines })
    assert.deepEqual(
      request.files.hostConfigs.map(({ path }) => path),
      ['install.yaml'],
    )
    assert.match(
      problems.map(({ message }) => message).join('\n'),
      /^host-config names no-such\.yaml, which cannot .*$/,
    )
  })

  const incomplete: Record<string, [Record<string, string>, string[]]> = {
    'a plan without a slug': [{ 'install-plan': 'install.yaml' }, ['slug']],
    'a file and a plan without a slug': [{ ...FILE, 'install-plan': 'install.yaml' }, ['slug']],
    'a file without its signature': [{ ...FILE, signature: '' }, ['signature']],
    'a signature without its file': [{ ...FILE, 'artifact-path': ' ' }, ['artifact-path']],
    'a file without the secret': [{ ...FILE, 'signing-secret': '' }, ['signing-secret']],
  }
  for (const [name, [given, missing]] of Object.entries(incomplete)) {
    it(`refuses ${name}`, () => {
      assert.deepEqual(
        problemsOf(given),
        missing.map(input => `missing ${input}`),
      )
    })
  }

  const halves: Record<string, [given: Record<string, string>, sentence: RegExp]> = {
    'nothing at all': [
      {},
      /but hub-url, slug, api-key, signing-secret have no value; a check of a plan needs .*; a check of a file needs artifact-path,/,
    ],
    'a slug alone': [{ slug: 'greeter' }, /but hub-url, api-key, signing-secret have no value; a check of a plan/],
    'a hub without its secrets': [
      { ...HUB, 'api-key': '', 'signing-secret': '\n' },
      /but api-key, signing-secret have no value \(a secret is empty if .* a fork\)$/,
    ],
    'a hub and a plan without a secret': [
      { ...HUB, ...PLAN, 'signing-secret': '' },
      /but signing-secret has no value .*; to check only install-plan and host-config, leave out hub-url, api-key$/,
    ],
    'secrets and a plan without a hub': [
      { ...SECRETS, ...PLAN },
      /but hub-url has no value; to check only install-plan and host-config, leave out api-key, signing-secret$/,
    ],
    'a hub and secrets without a slug': [{ ...HUB, slug: '' }, /but slug has no value$/],
  }
  for (const [name, [given, sentence]] of Object.entries(halves)) {
    it(`says in one sentence which inputs are missing, given ${name}`, () => {
      const problems = readInputs(given).problems
      assert.deepEqual(
        problems.map(({ kind }) => kind),
        ['missing'],
      )
      assert.match(
        problems[0]?.message ?? '',
        /^A check of what a hub serves needs hub-url, slug, api-key, signing-secret/,
      )
      assert.match(problems[0]?.message ?? '', sentence)
    })
  }

  for (const name of ['hub-url', 'services-url', 'api-key', 'signing-secret', 'artifact-sha256', 'signature']) {
    it(`does not settle for a check of the plan when ${name} asks for more`, () => {
      const given = { ...HUB, ...FILE, 'services-url': 'https://hub.example', 'artifact-sha256': 'ab'.repeat(32) }
      assert.ok(problemsOf({ ...PLAN, [name]: given[name as keyof typeof given] }).length > 0)
    })
  }

  const chosen = {
    version: '1.0.0',
    'timeout-minutes': '5',
    'max-artifact-bytes': '1000',
    'max-extracted-bytes': '1000',
    'max-entries': '10',
    'ca-file': 'install.yaml',
    'allow-http': 'true',
  }
  for (const [name, value] of Object.entries(chosen)) {
    it(`requires a hub when ${name} differs from its default, even if there is a plan`, () => {
      const [problem] = readInputs({ ...PLAN, [name]: value }).problems
      assert.match(problem?.message ?? '', /but hub-url, api-key, signing-secret have no value /)
      assert.ok(problem?.message.endsWith(`leave out ${name}`))
    })
  }

  for (const name of ['hub-url', 'services-url', 'api-key']) {
    it(`refuses a file together with ${name}`, () => {
      const given = { ...HUB, 'services-url': 'https://hub.example' }
      assert.deepEqual(problemsOf({ ...FILE, [name]: given[name as keyof typeof given] }), [`invalid ${name}`])
    })
  }

  it('reports all malformed inputs at once, and removes both secrets from the environment', () => {
    const malformed = {
      'allow-http': '1',
      'artifact-sha256': 'abc',
      'ca-file': 'no-such.pem',
      'host-config': 'no-such.yaml',
      'plugins-directory': '../plugins',
      'hub-url': 'https://user@hub.example',
      'install-plan': 'no-such.yaml',
      'keep-paths': '../outside',
      kind: 'theme',
      'max-artifact-bytes': '0',
      'max-entries': '1e3',
      'max-extracted-bytes': '12 MiB',
      'services-url': 'not a URL',
      slug: '../greeter',
      'timeout-minutes': '0',
      version: 'v1/../2',
    }
    assert.deepEqual(
      problemsOf({ ...HUB, ...malformed }).toSorted(),
      Object.keys(malformed)
        .map(name => `invalid ${name}`)
        .toSorted(),
    )
    withInputs({ ...DEFAULTS, ...HUB }, workspace => {
      assert.deepEqual(readVerifyInputs(workspace).secrets.toSorted(), Object.values(SECRETS).toSorted())
      assert.deepEqual([process.env['INPUT_API-KEY'], process.env['INPUT_SIGNING-SECRET']], [undefined, undefined])
    })
  })

  describe('a workspace with the files of a pull request', () => {
    /**
     * The problems with the plan at this path. `secret` is a folder outside the workspace, with a plan that no message
     * may quote.
     */
    function problemsWith(path: string, prepare: (workspace: string, secret: string) => void): string[] {
      const given = { ...DEFAULTS, ...PLAN, 'install-plan': path }
      return withInputs(given, workspace => {
        const outside = mkdtempSync(join(tmpdir(), 'outside-'))
        writeFileSync(join(outside, 'install.yaml'), 'secret: of the host\n')
        prepare(workspace, outside)
        const { problems, request } = readVerifyInputs(workspace)
        rmSync(outside, { recursive: true })
        assert.doesNotMatch(JSON.stringify(request.files), /of the host/)
        return problems.map(({ kind, message }) => `${kind} ${message}`)
      }).result
    }

    it('cannot make the check read another file on the machine', () => {
      const leads: Record<string, (workspace: string, outside: string) => void> = {
        'link.yaml': (workspace, outside) => symlinkSync(join(outside, 'install.yaml'), join(workspace, 'link.yaml')),
        'folder/install.yaml': (workspace, outside) => symlinkSync(outside, join(workspace, 'folder')),
        './folder//install.yaml': (workspace, outside) => symlinkSync(outside, join(workspace, 'folder')),
      }
      for (const [path, prepare] of Object.entries(leads)) {
        const [problem, ...others] = problemsWith(path, prepare)
        assert.match(problem ?? '', /^invalid install-plan names .* symlink/)
        assert.deepEqual(others, [])
      }
    })

    it('cannot do so through a path that spells the workspace differently', { skip: whyNoFoldingDisk() }, t => {
      const { mounted } = mountFoldingDisk(t)
      writeTree(mounted, { 'Work/x': '', 'outside.yaml': 'secret: of the host\n' })
      symlinkSync('../outside.yaml', join(mounted, 'Work/link.yaml'))
      for (const path of ['../WORK/link.yaml', join(mounted, 'work/link.yaml')]) {
        const given = { ...DEFAULTS, ...PLAN, 'install-plan': path }
        const { problems } = withInputs(given, () => readVerifyInputs(join(mounted, 'Work'))).result
        assert.match(problems[0]?.message ?? '', /^install-plan names .* symlink/)
      }
    })

    it('does not affect a file that the operator names by an absolute path', () => {
      const folder = mkdtempSync(join(tmpdir(), 'host-'))
      writeFileSync(join(folder, 'host.yaml'), 'version: 1\n')
      symlinkSync('host.yaml', join(folder, 'link.yaml'))
      const { request, problems } = readInputs({ ...PLAN, 'host-config': join(folder, 'link.yaml') })
      rmSync(folder, { recursive: true })
      assert.deepEqual([request.files.hostConfigs.map(({ text }) => text), problems], [['version: 1\n'], []])
    })
  })

  it('reads keep-paths one per line or separated by commas', () => {
    const { keepPaths } = readInputs({ ...PLAN, 'keep-paths': 'data, .env\nuploads/a' }).request.files
    assert.deepEqual(keepPaths, ['data', '.env', 'uploads/a'])
    assert.deepEqual(readInputs(PLAN).request.files.keepPaths, ['.env', 'data'])
  })
})

describe('buildVerifyOutputs', () => {
  it('sets every output of action.yml except error-code, which the step sets', () => {
    const subject = { mode: 'hub' } as Parameters<typeof buildVerifyOutputs>[0]
    const error = new DeploymentError('cancelled', 'x')
    const outputs = buildVerifyOutputs(subject, { facts: {}, error })
    assert.deepEqual([...Object.keys(outputs), 'error-code'].toSorted(), Object.keys(DEFINITION.outputs).toSorted())
    assert.deepEqual(Object.values(outputs), ['false', '', '', '', ''])
    assert.equal(buildVerifyOutputs({ ...subject, mode: 'none' }, { facts: {}, error: undefined })['verified'], '')
  })
})
