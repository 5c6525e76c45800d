import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import type { ActionResult } from '../../local/runner.ts'
import { acceptedReports } from './harness/evidence.ts'
import { acceptedProjectReports } from './harness/project-evidence.ts'
import { openProjectStage, projectFiles } from './harness/project-stage.ts'
import { openStage, pluginFiles, SERVICE_PLAN } from './harness/stage.ts'

const README = readFileSync(join(import.meta.dirname, '../../README.md'), 'utf8')
const SHOWN_HUB = 'https://hub.example.com'

/** The base URLs that README.md shows for a hub that mounts its services. */
function mountsOf(hub: string): Record<string, string> {
  const [, shown = ''] = /```yaml\n(hub-url: .*?)```/s.exec(README) ?? []
  assert.deepEqual(Object.keys(parse(shown)), ['hub-url', 'services-url', 'deployments-url'])
  return parse(shown.replaceAll(SHOWN_HUB, hub))
}

function projectMountOf(hub: string): string {
  const [, shown = ''] = /project action[^`]*`hub-url` is `([^`]+)`/s.exec(README) ?? []
  return shown.replace(SHOWN_HUB, hub)
}

describe('on a hub that mounts its services, with the base URLs that the README shows', () => {
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
})

async function opened<T extends { close(): Promise<void> }>(t: TestContext, opening: Promise<T>): Promise<T> {
  const stage = await opening
  t.after(() => stage.close())
  return stage
}

function assertDeployed({ exitCode, outputs, log }: ActionResult): void {
  assert.deepEqual([exitCode, outputs['outcome'], outputs['reported']], [0, 'success', 'true'], log)
}
