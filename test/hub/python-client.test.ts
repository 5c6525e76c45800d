import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { createProject } from '../../hub/project/catalogue.ts'
import { createProjectKey, revokeProject } from '../../hub/project/keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { listDeployments } from '../../hub/project/reports.ts'
import { openProjectStage } from '../e2e/harness/project-stage.ts'
import { whyLeftToCi } from '../extent.ts'
import { newValue, runShopHub } from './project/project-client.ts'
import { newShop, sealShop } from './project/project-source.ts'
import { ADMIN_TOKEN, runHub, SIGNING_SECRET } from './running-hub.ts'

const RUN = join(import.meta.dirname, 'python/run.py')
const skip = whyNoPython()

/** The bases at which other clients look for the routes; test/hub/mounts.test.ts compares them with the root. */
function basesOf(url: string) {
  return {
    plugin: `${url}/app/marketplace`,
    service: `${url}/app/xservices`,
    deployments: `${url}/app/xdeployments`,
    project: `${url}/app/xdeploy`,
  }
}

describe('a client in Python, written from the contracts,', { skip: whyLeftToCi() || skip }, () => {
  for (const [kind, slug, files] of [
    ['plugin', 'hello', ['plugin.yaml']],
    ['service', 'clock', ['run.sh']],
  ] as const) {
    it(`deploys a ${kind} and reports it`, async t => {
      const hub = await runHub(t)
      await hub.publish({ kind, slug, version: '1.2.0' }, { [files[0]]: 'name: hello\n' })
      const facts = { kind, slug, api_key: hub.newKey(), signing_secret: SIGNING_SECRET, base: basesOf(hub.url) }
      assert.deepEqual(await python('deploy_listing', facts), {
        latest: '1.2.0',
        verified: true,
        forged: false,
        files,
        named: `${slug}@1.2.0`,
        failed: 'failed',
        accepted: [kind, slug, '1.2.0', 'success', 'python-1'],
        hosts: [['python-1', 'success', '1.2.0']],
      })
    })
  }

  it('deploys a project and reports it, with an id and times from the hub', async t => {
    const { hub, credential } = await runShopHub(t)
    const facts = { project_id: 'shop', devkey: newValue(hub, 'devkey'), credential, base: basesOf(hub.url).project }
    const seen = (await python('deploy_project', facts)) as { version: string; ids: string[]; named: string }
    assert.equal(seen.version, '1.0.0')
    assert.equal(new Set(seen.ids).size, 2)
    assert.equal(seen.named, seen.ids[0])
    assert.deepEqual(
      listDeployments(hub.store, 10)
        .map(({ deployment_id, status, plugins }) => [deployment_id, status, plugins])
        .sort(),
      [
        [seen.ids[0], 'failed', [{ id: 'cart', version: '1.10' }]],
        [seen.ids[1], 'success', [{ id: 'cart', version: '1.10' }]],
      ].sort(),
    )
  })

  it('reads the same sentence from error and detail of every refusal', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const seen = await python('meet_refusals', { slug: 'hello', project_id: 'shop', base: basesOf(hub.url) })
    const statuses = Object.entries(seen as Record<string, { status: number; error: string; detail: string }>).map(
      ([name, { status, error, detail }]) => {
        assert.ok(error.length > 10 && error === detail, name)
        return [name, status]
      },
    )
    assert.deepEqual(Object.fromEntries(statuses), {
      'no such plugin': 404,
      'a wrong key': 401,
      'no key': 401,
      'a malformed report': 401,
      'a wrong dev key': 401,
      'no token': 401,
      'no such route': 404,
      'a wrong method': 405,
      'a guessed download': 403,
    })
  })

  it('gets an API key and uses it', async t => {
    const hub = await runHub(t)
    await hub.publish()
    const facts = { root: hub.url, base: basesOf(hub.url), admin_token: ADMIN_TOKEN, slug: 'hello' }
    assert.deepEqual(await python('use_new_key', facts), {
      fields: ['created_at', 'id', 'is_active', 'key', 'last_used_at', 'name', 'prefix'],
      fetched: 200,
    })
  })

  it('gets no key for a project that was revoked', async t => {
    const { hub } = await runShopHub(t)
    const keys = { devkey: newValue(hub, 'devkey'), credential: newValue(hub, 'credential') }
    revokeProject(hub.store, 'shop')
    await assert.rejects(python('deploy_project', { ...keys, project_id: 'shop', base: hub.url }), /HTTP 401/)
    const facts = { ...keys, devkey: newValue(hub, 'devkey'), project_id: 'shop', base: hub.url }
    await assert.rejects(python('deploy_project', facts), /HTTP 403.*credential/)
  })

  it('opens a project of several MiB with long names and many files', async t => {
    const { hub, credential } = await runShopHub(t)
    const many = Array.from({ length: 200 }, (_, i) => [`plugins/cart/${'ß'.repeat(i)}.txt`.slice(0, 130), `${i}`])
    const files = { ...Object.fromEntries(many), 'plugins/cart/big': 'big '.repeat(1_000_000) }
    await publishProject(hub.store, await sealShop(t, { version: '2.0.0', source: newShop(t, files) }))
    const facts = { project_id: 'shop', devkey: newValue(hub, 'devkey'), credential, base: hub.url }
    assert.equal(((await python('deploy_project', facts)) as { version: string }).version, '2.0.0')
  })

  for (const [form, has_content_size] of [
    ['with', true],
    ['without', false],
  ] as const) {
    it(`publishes a project that the project action deploys, ${form} its size in the zstd frame`, async t => {
      const stage = await openProjectStage()
      t.after(() => stage.close())
      const { project_id } = createProject(stage.store, 'Made in Python')
      const base = basesOf(stage.hub.url).project
      const newKey = (purpose: 'publisher' | 'devkey' | 'credential') =>
        createProjectKey(stage.store, { project_id, purpose, name: 'test' }).value
      const facts = { base, project_id, devkey: newKey('publisher'), version: '1.0.0', has_content_size, lines: 9_999 }
      const seen = (await python('publish_project', facts)) as Published
      assert.deepEqual(seen.again, seen.answer)
      assert.equal(seen.answer['size_bytes'], seen.size)
      assert.equal(seen.refused?.status, 409)
      const { outputs, log } = await stage.deploy({
        'hub-url': base,
        'project-id': project_id,
        devkey: newKey('devkey'),
        'deployment-credential': newKey('credential'),
        'signer-public-key': seen.signer_public_key,
      })
      assert.deepEqual([outputs['outcome'], outputs['version']], ['success', '1.0.0'], log)
    })
  }
})

interface Published {
  readonly answer: Record<string, unknown>
  readonly again: Record<string, unknown>
  readonly size: number
  readonly signer_public_key: string
  readonly refused: { status: number } | null
}

/** Resolves to the client's findings, or rejects with its traceback. */
function python(scenario: string, facts: object): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const options = { env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', no_proxy: '*' } }
    const child = execFile('python3', [RUN, scenario], options, (error, stdout, stderr) => {
      if (error === null) resolve(JSON.parse(stdout))
      else reject(new Error(stderr))
    })
    child.stdin?.end(JSON.stringify(facts))
  })
}

function whyNoPython(): string | false {
  const { status, stderr, error } = spawnSync('python3', ['-c', 'import cryptography, zstandard'], { encoding: 'utf8' })
  if (error !== undefined) return 'needs python3'
  return status !== 0 && `needs Python packages: ${stderr.trim().split('\n').at(-1)}`
}
