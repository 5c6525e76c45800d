import { join } from 'node:path'
import { parseArgs } from 'node:util'
import type { ActionResult } from '../local/runner.ts'
import { DEPLOYMENTS, type Deployment } from './demo/deployments.ts'
import { expectEqual } from './demo/expect.ts'
import { fingerprint } from './demo/host-files.ts'
import { showChapter, showTable, showVerified } from './demo/screen.ts'
import { showResult } from './demo/show-result.ts'
import { type DemoStage, openStage } from './demo/stage.ts'

const { values } = parseArgs({ options: { keep: { type: 'boolean', default: false } } })
const stage = await openStage()
try {
  await tellStory(stage)
} finally {
  await stage.close(values.keep)
}
process.stdout.write(
  `\nAll ${DEPLOYMENTS.length} deployments ended as they should. ${values.keep ? `Kept: ${stage.folder}` : 'Everything was removed again.'}\n`,
)

async function tellStory(on: DemoStage): Promise<void> {
  showChapter(
    'The stage',
    `A reference hub on ${on.hub.url}, and an empty folder that plays the host app-1.`,
    'Each deployment runs the bundle in dist/ as the runner would, and then shows what it left. --keep keeps the folder.',
  )
  const results: ActionResult[] = []
  for (const [index, deployment] of DEPLOYMENTS.entries()) {
    showChapter(`${index + 1} of ${DEPLOYMENTS.length}: ${deployment.title}`, ...deployment.story)
    results.push(await tellDeployment(on, deployment))
  }
  await showFleet(on)
  showInShort(results)
}

async function tellDeployment(on: DemoStage, deployment: Deployment): Promise<ActionResult> {
  await deployment.arrange(on)
  const before = installedFiles(on)
  const result = await deployment.run(on)
  showResult(result, on.root)
  expectOutputs(result, deployment.expected)
  if (result.outputs['outcome'] !== 'success') expectEqual('what is installed', installedFiles(on), before)
  deployment.verify?.(on)
  showVerified(deployment.verified)
  return result
}

async function showFleet(on: DemoStage): Promise<void> {
  showChapter(
    'The fleet, as the hub knows it',
    'The newest report of each host; app-1 tried greeter 2.0.0 and took it back. Projects report by deployment, without a host.',
  )
  const entries = [...(await on.readFleet('plugin', 'greeter')), ...(await on.readFleet('service', 'clock'))]
  const rows = entries.map(({ host_id, kind, slug, version, status }) => [host_id, kind, slug, version, status])
  showTable('GET /deployments/{kind}/{slug}/hosts', [['HOST', 'KIND', 'SLUG', 'VERSION', 'STATUS'], ...rows])
  expectEqual(
    'the fleet',
    rows.map(row => row.join(' ')).join(', '),
    'app-1 plugin greeter 2.0.0 rolled_back, app-1 service clock 1.0.0 success',
  )
  showProjects(on)
}

function showProjects(on: DemoStage): void {
  const rows = on.project.readReports().map(({ project_id, version, status }) => [project_id, version, status])
  showTable('Project deployments, oldest first', [['PROJECT', 'VERSION', 'STATUS'], ...rows])
  expectEqual(
    'the deployments of projects',
    rows.map(row => row.join(' ')).join(', '),
    'shop 1.0.0 success, shop 1.1.0 failed',
  )
}

function showInShort(results: readonly ActionResult[]): void {
  const rows = results.map(({ outputs }, index) => [
    String(index + 1),
    subjectOf(outputs),
    `${outputs['previous-version'] || 'nothing'} → ${outputs['version']}`,
    outputs['outcome'] ?? '',
    outputs['error-code'] ?? '',
  ])
  showChapter('In short')
  showTable('The deployments', [['', 'WHAT', 'VERSION', 'OUTCOME', 'ERROR'], ...rows])
}

/** A project has its parts in several places. */
function subjectOf({ 'project-id': projectId, 'install-path': path = '' }: ActionResult['outputs']): string {
  return projectId === undefined ? path.split('/').slice(-2).join('/') : `project ${projectId}`
}

/** Everything of the host but our own records. */
function installedFiles(on: DemoStage): string {
  return fingerprint([join(on.root, 'plugins'), join(on.root, 'extensions')])
}

function expectOutputs(result: ActionResult, expected: Readonly<Record<string, string>>): void {
  expectEqual('the exit code', result.exitCode, expected['outcome'] === 'success' ? 0 : 1)
  for (const [name, value] of Object.entries({ ...expected, reported: 'true' })) {
    expectEqual(`the output ${name}`, result.outputs[name], value)
  }
}
