import { join } from 'node:path'
import type { ActionResult } from '../local/runner.ts'
import { DEPLOYMENTS, type Deployment } from './demo/deployments.ts'
import { expectEqual } from './demo/expect.ts'
import { fingerprint } from './demo/fingerprint.ts'
import { CLOCK, GREETER } from './demo/releases.ts'
import { showChapter, showTable, showVerified } from './demo/screen.ts'
import { showResult } from './demo/show-result.ts'
import { type DemoStage, openStage } from './demo/stage.ts'
import { runProgram } from './program.ts'

await runProgram({
  name: 'npm run demo',
  purpose:
    'Deploys from a reference hub onto a temporary host, with dist/, and shows what each deployment leaves there.',
  options: { keep: { type: 'boolean', default: false, help: 'keep the folder of the hub and the host' } },
  async run({ keep }) {
    const stage = await openStage()
    try {
      await runDemo(stage)
    } finally {
      await stage.close(keep)
    }
    const leftBehind = keep ? `Look around in ${stage.folder}.` : 'The demo has removed its files.'
    process.stdout.write(`\nAll ${DEPLOYMENTS.length} deployments ended as expected. ${leftBehind}\n`)
  },
})

async function runDemo(on: DemoStage): Promise<void> {
  showChapter(
    'Setup',
    `A reference hub runs on ${on.hub.url}. An empty folder plays the host app-1.`,
    'Each deployment runs the bundle in dist/ as a runner would, then shows the result. Use --keep to keep the folder.',
  )
  const results: ActionResult[] = []
  for (const [index, deployment] of DEPLOYMENTS.entries()) {
    showChapter(`${index + 1} of ${DEPLOYMENTS.length}: ${deployment.title}`, ...deployment.intro)
    results.push(await runDeployment(on, deployment))
  }
  await showFleet(on)
  showSummary(results)
}

async function runDeployment(on: DemoStage, deployment: Deployment): Promise<ActionResult> {
  await deployment.arrange(on)
  const before = installedFiles(on)
  const result = await deployment.run(on)
  showResult(result, on.root)
  expectOutputs(result, deployment.expected)
  if (result.outputs['outcome'] !== 'success') expectEqual('the installed files', installedFiles(on), before)
  deployment.verify?.(on)
  showVerified(deployment.verified)
  return result
}

async function showFleet(on: DemoStage): Promise<void> {
  showChapter(
    'The fleet on the hub',
    'These are the newest reports: app-1 rolled back greeter 2.0.0. A project report names its deployment, not the host.',
  )
  const entries = [...(await on.readFleet(GREETER)), ...(await on.readFleet(CLOCK))]
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
    'the project deployments',
    rows.map(row => row.join(' ')).join(', '),
    'prj_ShopExample01 1.0.0 success, prj_ShopExample01 1.1.0 failed',
  )
}

function showSummary(results: readonly ActionResult[]): void {
  const rows = results.map(({ outputs }, index) => [
    String(index + 1),
    subjectOf(outputs),
    versionChange(outputs),
    outputs['outcome'] ?? '',
    outputs['error-code'] ?? '',
  ])
  showChapter('Summary')
  showTable('Deployments', [['', 'WHAT', 'VERSION', 'OUTCOME', 'ERROR'], ...rows])
}

function versionChange({ 'previous-version': previous, version }: ActionResult['outputs']): string {
  return previous ? `${previous} → ${version}` : `first install of ${version}`
}

/** A project has no single install path. */
function subjectOf({ 'project-id': projectId, 'install-path': path = '' }: ActionResult['outputs']): string {
  return projectId === undefined ? path.split('/').slice(-2).join('/') : `project ${projectId}`
}

/** All files on the host, except for our own records. */
function installedFiles(on: DemoStage): string {
  return fingerprint([join(on.root, 'plugins'), join(on.root, 'extensions')])
}

function expectOutputs(result: ActionResult, expected: Readonly<Record<string, string>>): void {
  expectEqual('the exit code', result.exitCode, expected['outcome'] === 'success' ? 0 : 1)
  for (const [name, value] of Object.entries({ ...expected, reported: 'true' })) {
    expectEqual(`the output ${name}`, result.outputs[name], value)
  }
}
