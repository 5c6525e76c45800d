import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import { zipFolder } from '../../../hub/archive/make-zip.ts'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { acceptedReports } from '../harness/evidence.ts'
import { acceptedProjectReports } from '../harness/project-evidence.ts'
import { openProjectStage, PROJECT_ID, projectFiles } from '../harness/project-stage.ts'
import { openStage, pluginFiles, SERVICE_PLAN, SIGNING_SECRET, writeFiles } from '../harness/stage.ts'

const README = readFileSync(join(import.meta.dirname, '../../../README.md'), 'utf8')
const SHOWN_HUB = 'https://hub.example.com'

/** The base URLs that README.md shows for a hub whose APIs have different paths, but with the address of this hub. */
function mountsOf(hub: string): Record<string, string> {
  const [, shown = ''] = /```yaml\n(hub-url: .*?)```/s.exec(README) ?? []
  assert.deepEqual(Object.keys(parse(shown)), ['hub-url', 'services-url', 'deployments-url'])
  return parse(shown.replaceAll(SHOWN_HUB, hub))
}

function projectMountOf(hub: string): string {
  const [, shown = ''] = /project action[^`]*`hub-url` is `([^`]+)`/s.exec(README) ?? []
  return shown.replace(SHOWN_HUB, hub)
}

describe('on a hub that mounts its services, with the base URLs that the README shows,', () => {
  it('a plugin and a service are deployed and reported', async t => {
    const stage = await opened(t, openStage())
    const bases = mountsOf(stage.hub.url)
    await stage.publish('1.0.0', pluginFiles('1.0.0'))
    await stage.publish('2.0.0', { 'run.sh': 'true\n' }, { kind: 'service', slug: 'clock' })
    assertDeployed(await stage.deploy(bases))
    stage.writePlan(SERVICE_PLAN)
    assertDeployed(await stage.deploy({ ...bases, kind: 'service', slug: 'clock' }))
    assert.deepEqual(
      acceptedReports(stage).map(({ slug, version }) => [slug, version]),
      [
        ['greeter', '1.0.0'],
        ['clock', '2.0.0'],
      ],
    )
  })

  it('a project is deployed and reported', async t => {
    const stage = await opened(t, openProjectStage())
    await stage.publish('1.0.0', projectFiles('1.0.0'))
    assertDeployed(await stage.deploy({ 'hub-url': projectMountOf(stage.hub.url) }))
    assert.deepEqual(
      acceptedProjectReports(stage).map(({ version }) => version),
      ['1.0.0'],
    )
  })

  it('a project gets a service from the marketplace', async t => {
    const stage = await opened(t, openProjectStage())
    const source = join(stage.folder, 'clock')
    writeFiles(source, { 'run.sh': 'true\n' })
    const clock = { kind: 'service' as const, slug: 'clock', version: '2.0.0', signingSecret: SIGNING_SECRET }
    await publishArchive(stage.store, zipFolder(source).bytes, clock)
    const cart = '{id: cart, action: install_plugin, plugin: cart}'
    const step =
      '{id: c, action: install_extension, extension: clock, source: {marketplace_slug: clock, marketplace_kind: service}}'
    const plan = `format_version: "1"\nproject_id: ${PROJECT_ID}\nversion: "1"\nsteps:\n  - ${cart}\n  - ${step}\n`
    await stage.publish('1.0.0', {
      'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n',
      'deployment/install.yaml': plan,
    })
    const { 'hub-url': hub = '', 'services-url': services = '' } = mountsOf(stage.hub.url)
    const sources = { 'sources-api-key': stage.apiKey, 'sources-signing-secret': SIGNING_SECRET }
    const deploy = (more = {}) => stage.deploy({ 'sources-hub-url': hub, ...sources, ...more })
    assert.match(
      (await deploy()).log,
      /extensions\/clock: .* from http:[^ ]*\/app\/marketplace: .* and sources-hub-url, or set sources-services-url\./,
    )
    assertDeployed(await deploy({ 'sources-services-url': services }))
    assert.equal(readFileSync(join(stage.root, 'extensions/clock/run.sh'), 'utf8'), 'true\n')
  })
})

async function opened<T extends { close(): Promise<void> }>(t: TestContext, opening: Promise<T>): Promise<T> {
  const stage = await opening
  t.after(() => stage.close())
  return stage
}

function assertDeployed({ exitCode, outputs, log }: ActionResult): void {
  assert.deepEqual([exitCode, outputs['outcome'], outputs['reported']], [0, 'success', 'true'], log)
}
