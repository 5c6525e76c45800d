import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { createKey } from '../../../hub/access.ts'
import { zipFolder } from '../../../hub/archive/make-zip.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import { publishProject } from '../../../hub/project/publish.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { buildZip, file } from '../../archives/zip-builder.ts'
import { whyLeftToCi } from '../../extent.ts'
import { type GitServer, startGitServer, whyNoGitServer } from '../../sources/git-server.ts'
import { Repository } from '../../sources/git-stage.ts'
import { listHost } from '../harness/evidence.ts'
import { acceptedProjectReports, assertKeptSecret, installedRows } from '../harness/project-evidence.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage } from '../harness/project-stage.ts'
import { SIGNING_SECRET, writeFiles } from '../harness/stage.ts'
import { OFFERED_VERSION, projectTar, type SealedOffer, sealTar } from '../harness/untrusted-project-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

const TOKEN = 'a-token-for-the-git-server'

const MAIL_YAML = 'name: mail\nversion: "4.5.6"\n'

const CART_PLAN = `format_version: "1"
project_id: ${PROJECT_ID}
version: "1"
steps:
  - {id: cart, action: install_plugin, plugin: cart}
`

/** A plan for an embedded plugin, a plugin from the marketplace, and an extension from git. */
function planWith(git: { url: string; ref: string }): string {
  return `format_version: "1"
project_id: ${PROJECT_ID}
version: "1"
steps:
  - {id: cart, action: install_plugin, plugin: cart}
  - {id: pay, action: install_plugin, plugin: pay, source: {marketplace_slug: payments}}
  - {id: env, action: write_env, plugin: pay, from: plugins/pay/.env.template, depends_on: [pay]}
  - {id: mailer, action: install_extension, extension: mailer, source: {url: "${git.url}", ref: ${git.ref}, subdirectory: ext}}
`
}

describe('a project whose parts come from elsewhere', { skip: whyNoGitServer() ?? false }, () => {
  let stage: ProjectStage
  let git: GitServer
  let repository: Repository
  let commit: string

  before(async () => {
    stage = await openProjectStage()
    const served = join(stage.folder, 'served')
    mkdirSync(served)
    git = await startGitServer(served)
    repository = new Repository(served, 'mailer')
    git.intercept = (request, response) => {
      if (request.headers.authorization !== undefined) return false
      response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end()
      return true
    }
    writeFileSync(join(stage.workspace.path, 'ca.pem'), git.certificate.cert)
  })
  after(async () => {
    await git.close()
    await stage.close()
  })

  async function publishPlugin(version: string): Promise<void> {
    const source = join(stage.folder, `payments-${version}`)
    writeFiles(source, {
      'plugin.yaml': `name: payments\nversion: "${version}"\n`,
      'src/main.py': `print("${version}")\n`,
    })
    const publication = {
      kind: 'plugin' as const,
      slug: 'payments',
      version,
      signingSecret: SIGNING_SECRET,
      replace: false,
    }
    await publishArchive(stage.store, zipFolder(source).bytes, publication)
  }

  async function deploy(more: Record<string, string> = {}): Promise<ActionResult> {
    return stage.deploy({
      'sources-hub-url': stage.hub.url,
      'sources-api-key': stage.apiKey,
      'sources-signing-secret': SIGNING_SECRET,
      'sources-git-tokens': `${git.host}=${TOKEN}`,
      'ca-file': 'ca.pem',
      ...more,
    })
  }

  it('fetches them, reports them only to its own hub, and changes nothing the next night', async () => {
    await publishPlugin('3.1.0')
    commit = repository.commit({ 'ext/run.sh': '+x echo 1\n', 'other/x': 'x' })
    await stage.publish('1.0.0', {
      'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n',
      'plugins/pay/plugin.yaml': 'name: stub\nversion: "0"\n',
      'plugins/pay/.env.template': 'CURRENCY=EUR\n',
      'plugins/pay/left-out.py': 'a copy of the developer\n',
      'deployment/install.yaml': planWith({ url: `${git.url}/mailer`, ref: commit }),
    })
    const first = await deploy()
    assert.equal(first.exitCode, 0, first.log)
    const at = (path: string): string => readFileSync(join(stage.root, path), 'utf8')
    assert.match(at('plugins/pay/plugin.yaml'), /3\.1\.0/)
    assert.equal(at('plugins/pay/.env.template'), 'CURRENCY=EUR\n')
    assert.equal(at('plugins/pay.env').includes('CURRENCY=EUR'), true)
    assert.equal(at('extensions/mailer/run.sh'), 'echo 1\n')
    assert.deepEqual(
      Object.keys(listHost(stage.root)).filter(path => /left-out|other/.test(path)),
      [],
    )
    const plugins = [
      { id: 'cart', version: '1.0.0' },
      { id: 'pay', version: '3.1.0' },
    ]
    assert.equal(first.outputs['plugins'], JSON.stringify(plugins))
    assert.deepEqual(
      acceptedProjectReports(stage).map(report => report.plugins),
      [plugins],
    )
    assert.deepEqual(stage.store.db.prepare('SELECT * FROM reports').all(), [])
    assertKeptSecret(stage, [first.log, first.summary], [Buffer.from(TOKEN), Buffer.from(SIGNING_SECRET)])

    const before = listHost(stage.root)
    const second = await deploy()
    assert.deepEqual([second.exitCode, second.outputs['changed']], [0, 'false'], second.log)
    assert.deepEqual(listHost(stage.root), before)
  })

  it('follows the marketplace, without fetching the commit again, and records both sources', async () => {
    await publishPlugin('3.2.0')
    git.requests.length = 0
    const result = await deploy()
    assert.deepEqual([result.exitCode, result.outputs['changed']], [0, 'true'], result.log)
    assert.match(readFileSync(join(stage.root, 'plugins/pay/plugin.yaml'), 'utf8'), /3\.2\.0/)
    assert.deepEqual(git.requests, [])
    const rows = installedRows(stage)
    assert.partialDeepStrictEqual(rows['plugin pay'], {
      version: '3.2.0',
      project_version: '1.0.0',
      artifact_sha256: result.outputs['artifact-sha256'],
      source: { from: `${stage.hub.url} plugin payments` },
    })
    assert.deepEqual(rows['service mailer']?.source, { from: `${git.url}/mailer`, id: commit })
    assert.equal(rows['plugin cart']?.source, undefined)
  })

  it('records the version of a plugin.yaml that is a symlink, and installs the file that it points to', async () => {
    const ref = repository.commit({ 'ext/run.sh': '1', 'plugin.yaml': '->meta.yaml', 'meta.yaml': MAIL_YAML })
    const source = `{url: "${git.url}/mailer", ref: ${ref}}`
    const plan = `${planWith({ url: `${git.url}/mailer`, ref: commit })}  - {id: mail, action: install_plugin, plugin: mail, source: ${source}}\n`
    const files = { 'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n', 'deployment/install.yaml': plan }
    await stage.publish('1.0.1', { ...files, 'plugins/pay/.env.template': 'CURRENCY=EUR\n' })
    const { exitCode, log } = await deploy()
    assert.equal(exitCode, 0, log)
    assert.equal(installedRows(stage)['plugin mail']?.version, '4.5.6')
    assert.match(readFileSync(join(stage.root, 'plugins/mail/plugin.yaml'), 'utf8'), /4\.5\.6/)
  })

  it('is refused before anything changes: without an input, with older bytes, or with another tree', {
    skip: ONLY_IN_CI,
  }, async () => {
    const before = listHost(stage.root)
    const refused = async (code: string, inputs: Record<string, string> = {}, message = /./): Promise<void> => {
      const { exitCode, outputs, log } = await deploy(inputs)
      assert.deepEqual([exitCode, outputs['outcome'], outputs['error-code']], [1, 'failed', code], log)
      assert.match(log, message)
      assert.deepEqual(listHost(stage.root), before)
    }
    await refused('missing_input', { 'sources-api-key': '' })
    const isSecretNamed = /plugins\/pay: .* with this sources-signing-secret, .* for this sources-api-key:/
    await refused('signature_mismatch', { 'sources-signing-secret': 'another secret' }, isSecretNamed)
    await refused(
      'authentication_failed',
      { 'sources-api-key': 'another-key' },
      /plugins\/pay: .* Check sources-api-key, which/,
    )
    const isBaseNamed = /plugins\/pay: .* from http:[^ ]*\/elsewhere: .* 404.* manifest\.json and sources-hub-url\./
    await refused('not_found', { 'sources-hub-url': `${stage.hub.url}/elsewhere` }, isBaseNamed)
    stage.store.db.prepare("DELETE FROM versions WHERE version = '3.2.0'").run()
    await refused('downgrade_refused')
    await refused('invalid_input', { 'sources-git-tokens': 'no token at all' })
    const source = { marketplace_slug: 'payments', marketplace_version: '3.1.0' }
    const manifest = { plugins: [{ id: 'cart', version: OFFERED_VERSION, source, sha256: 'a1'.repeat(32) }] }
    await publishProject(
      stage.store,
      releaseOf(sealTar(projectTar({ manifest, files: { 'deployment/install.yaml': CART_PLAN } }), stage.signingKey)),
    )
    await refused('content_mismatch')
  })

  function releaseOf({ bytes, signature, dek }: SealedOffer) {
    const version = OFFERED_VERSION
    const key = { signer_public_key: stage.signerPublicKey, dek: dek.toString('base64') }
    return { bytes, release: { project_id: PROJECT_ID, version, signature, ...key } }
  }
})

describe('a project with parts from a marketplace that binds each key to one slug', () => {
  let stage: ProjectStage
  before(async () => {
    stage = await openProjectStage()
  })
  after(() => stage.close())

  it('takes a key of its own for each slug, masks each, and knows a part by its content', {
    skip: ONLY_IN_CI,
  }, async () => {
    const keys: Record<string, string> = {}
    for (const slug of ['payments', 'ledger']) {
      const source = join(stage.folder, slug)
      writeFiles(source, { 'plugin.yaml': `name: ${slug}\nversion: "1.0.0"\n` })
      const publication = {
        kind: 'plugin',
        slug,
        version: '1.0.0',
        signingSecret: SIGNING_SECRET,
        replace: false,
      } as const
      await publishArchive(stage.store, zipFolder(source).bytes, publication)
      keys[slug] = createKey(stage.store, { name: slug, kind: 'plugin', slug }).key
    }
    const steps = ['payments', 'ledger'].map(
      slug => `  - {id: ${slug}, action: install_plugin, plugin: ${slug}, source: {marketplace_slug: ${slug}}}\n`,
    )
    const plan = `${CART_PLAN}${steps.join('')}`
    const files = { 'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n', 'deployment/install.yaml': plan }
    await stage.publish('1.0.0', files)
    const marketplace = { 'sources-hub-url': stage.hub.url, 'sources-signing-secret': SIGNING_SECRET }
    const lines = Object.entries(keys).map(([slug, key]) => `${slug}=${key}`)
    const refused = await stage.deploy({ ...marketplace, 'sources-api-key': keys['payments'] ?? '' })
    assert.match(refused.log, /plugins\/ledger: .* give each such slug its own line in sources-api-keys/)
    const { exitCode, log } = await stage.deploy({ ...marketplace, 'sources-api-keys': lines.join('\n') })
    assert.equal(exitCode, 0, log)
    for (const key of Object.values(keys)) assert.ok(log.includes(`::add-mask::${key}`))
    const repacked = buildZip([file('x/plugin.yaml', 'name: payments\nversion: "1.0.0"\n')])
    const again = {
      kind: 'plugin',
      slug: 'payments',
      version: '1.0.0',
      signingSecret: SIGNING_SECRET,
      replace: true,
    } as const
    await publishArchive(stage.store, repacked, again)
    const next = await stage.deploy({ ...marketplace, 'sources-api-keys': lines.join('\n') })
    assert.deepEqual([next.outputs['outcome'], next.outputs['changed']], ['success', 'false'], next.log)
    await publishArchive(
      stage.store,
      buildZip([file('plugin.yaml', 'name: payments\nversion: "1.0.0"\n'), file('more')]),
      again,
    )
    const reused = await stage.deploy({ ...marketplace, 'sources-api-keys': lines.join('\n') })
    assert.equal(reused.outputs['error-code'], 'version_reused', reused.log)
    const partly = await stage.deploy({ ...marketplace, 'sources-api-keys': lines[0] ?? '', redeploy: 'true' })
    assert.equal(partly.outputs['error-code'], 'missing_input', partly.log)
  })
})
