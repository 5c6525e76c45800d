import { join } from 'node:path'
import type { ActionResult } from '../local/runner.ts'
import { DEPLOYMENTS, type Deployment, expectEqual } from './demo/deployments.ts'
import { fingerprint, listInstalled, showBriefly, showResult } from './demo/show.ts'
import { CLOCK, type DemoStage, GREETER, openStage } from './demo/stage.ts'
import { runProgram } from './program.ts'
import { print, printBlock, printHeading, tableLines } from './terminal/screen.ts'

/** The headings of the demo, each with the index of its first deployment. */
const CHAPTERS = [
  { title: 'Deploy and update', first: 0 },
  { title: 'When something is wrong', first: 3 },
  { title: 'A project: several parts, all or none', first: 5 },
]

await runProgram({
  name: 'npm run demo',
  purpose: `Deploys seven times from a reference hub onto a temporary host, running dist/ as a runner does. For each deployment,
it shows the result of the step and the versions on the host. It fails if a deployment does not end as expected.`,
  options: {
    verbose: {
      type: 'boolean',
      default: false,
      help: 'also show the log, outputs, summary, report and files of each deployment',
    },
    keep: { type: 'boolean', default: false, help: 'keep the folder of the hub and the host' },
  },
  async run({ keep, verbose }) {
    const stage = await openStage()
    try {
      await runDemo(stage, verbose)
      print('', `All ${DEPLOYMENTS.length} deployments ended as expected.${keep ? '' : ' The demo removes its files.'}`)
    } finally {
      await stage.close(keep)
      if (keep) print(`Look around in ${stage.folder}.`)
    }
  },
})

async function runDemo(on: DemoStage, isVerbose: boolean): Promise<void> {
  print(`A reference hub runs on ${on.hub.url}. An empty folder is the host app-1.`)
  for (const [index, deployment] of DEPLOYMENTS.entries()) {
    const chapter = CHAPTERS.find(({ first }) => first === index)
    if (chapter !== undefined) printHeading(chapter.title)
    const result = await runDeployment(on, deployment)
    showBriefly(deployment, { result, root: on.root })
    if (isVerbose) showResult(result, on.root)
  }
  await showFleet(on)
  showNext()
}

async function runDeployment(on: DemoStage, deployment: Deployment): Promise<ActionResult> {
  await deployment.arrange(on)
  const before = installedFiles(on)
  const result = await deployment.run(on)
  expectOutputs(result, deployment.expected)
  if (result.outputs['outcome'] !== 'success') expectEqual('the installed files', installedFiles(on), before)
  deployment.verify?.(on)
  return result
}

async function showFleet(on: DemoStage): Promise<void> {
  const running = new Map(listInstalled(on.root).map(({ id, version }) => [id, version]))
  const entries = [...(await on.readFleet(GREETER)), ...(await on.readFleet(CLOCK))]
  const rows = entries.map(({ host_id, kind, slug, version, status }) => [host_id, kind, slug, version, status])
  expectEqual(
    'the fleet',
    rows.map(row => row.join(' ')).join(', '),
    'app-1 plugin greeter 2.0.0 rolled_back, app-1 service clock 1.0.0 success',
  )
  const shown = entries.map(({ host_id, slug, version, status }) => [
    host_id,
    slug,
    running.get(slug) ?? '',
    `${version} ${status}`,
  ])
  printHeading('The fleet, as the hub knows it')
  printBlock(tableLines([['HOST', 'WHAT', 'RUNS', 'LAST ATTEMPT'], ...shown]))
  showProjects(on)
}

function showProjects(on: DemoStage): void {
  const rows = on.project.readReports().map(({ project_id, version, status }) => [project_id, version, status])
  expectEqual(
    'the project deployments',
    rows.map(row => row.join(' ')).join(', '),
    'prj_ShopExample01 1.0.0 success, prj_ShopExample01 1.1.0 failed',
  )
  print('', 'Project deployments, oldest first')
  printBlock(tableLines([['PROJECT', 'VERSION', 'STATUS'], ...rows]))
}

function showNext(): void {
  printHeading('What next')
  const rows = [
    ['npm run try -- --from examples/plugin', 'deploy your own plugin, service or project'],
    ['npm run demo -- --verbose', 'see the log, summary, report and files of each deployment'],
    ['npm run hub -- --help', 'publish, and serve a hub with its page'],
    ['README.md', 'deploy onto a real host'],
  ]
  print(...tableLines(rows))
}

/** Returns a fingerprint of the files in `plugins/` and `extensions/` of the host. */
function installedFiles(on: DemoStage): string {
  return fingerprint([join(on.root, 'plugins'), join(on.root, 'extensions')])
}

function expectOutputs(result: ActionResult, expected: Readonly<Record<string, string>>): void {
  expectEqual('the exit code', result.exitCode, expected['outcome'] === 'success' ? 0 : 1)
  for (const [name, value] of Object.entries({ ...expected, reported: 'true' })) {
    expectEqual(`the output ${name}`, result.outputs[name], value)
  }
}
