import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { zipFolder } from '../../hub/folder-archive.ts'
import { publishArchive } from '../../hub/marketplace/publish.ts'
import type { ActionResult } from '../../local/runner.ts'
import { type GitServer, startGitServer, whyNoGitServer } from '../sources/git/git-server.ts'
import { Repository } from '../sources/git/repository.ts'
import { listHost } from './harness/evidence.ts'
import { acceptedProjectReports, assertKeptSecret } from './harness/project-evidence.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage } from './harness/project-stage.ts'
import { SIGNING_SECRET, writeFiles } from './harness/stage.ts'

const TOKEN = 'a-token-for-the-git-server'

/** A plan of one embedded plugin, one from the marketplace, and one extension from git. */
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

  it('gets them, reports them to its own hub only, and changes nothing the next night', async () => {
    await publishPlugin('3.1.0')
    const ref = repository.commit({ 'ext/run.sh': '+x echo 1\n', 'other/x': 'x' })
    await stage.publish('1.0.0', {
      'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n',
      'plugins/pay/plugin.yaml': 'name: stub\nversion: "0"\n',
      'plugins/pay/.env.template': 'CURRENCY=EUR\n',
      'plugins/pay/left-out.py': 'a copy of the developer\n',
      'deployment/install.yaml': planWith({ url: `${git.url}/mailer`, ref }),
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
})
