import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { fingerprint } from './demo/host-files.ts'
import { RELEASES } from './demo/releases.ts'
import { showChapter, showTable, showVerified } from './demo/screen.ts'
import { showResult } from './demo/show-result.ts'
import { type DemoStage, openStage } from './demo/stage.ts'
import type { ActionResult } from './local-runner.ts'

const { values } = parseArgs({ options: { keep: { type: 'boolean', default: false } } })
const stage = await openStage()
try {
  await tellStory(stage)
} finally {
  await stage.close(values.keep)
}
process.stdout.write(
  `\nAll five deployments ended as they should. ${values.keep ? `Kept: ${stage.folder}` : 'Everything was removed again.'}\n`,
)

async function tellStory(on: DemoStage): Promise<void> {
  showChapter(
    'The stage',
    `A reference hub on ${on.hubUrl}, and an empty folder that plays the host app-1.`,
    'Each deployment runs the bundle in dist/ as the runner would, and then shows what it left. --keep keeps the folder.',
  )
  const results = [
    await deployPlugin(on),
    await deployService(on),
    await updatePlugin(on),
    await refuseTamperedArtifact(on),
    await takeFailedUpdateBack(on),
  ]
  await showFleet(on)
  showInShort(results)
}

async function deployPlugin(on: DemoStage): Promise<ActionResult> {
  showChapter('1 of 5: deploy a plugin', 'greeter 1.0.0 is published, signed by its developer, and deployed.')
  await on.publish(RELEASES.greeter1)
  const result = await on.deploy('plugin', 'greeter', 'install.yaml')
  showResult(result, on.root)
  expectOutputs(result, { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' })
  showVerified('greeter 1.0.0 is installed, with a plugin.sig made for this host, and the hub has the report.')
  return result
}

async function deployService(on: DemoStage): Promise<ActionResult> {
  showChapter('2 of 5: deploy a service', 'clock 1.0.0 goes beside it, below extensions/.')
  await on.publish(RELEASES.clock1)
  const result = await on.deploy('service', 'clock', 'install-service.yaml')
  showResult(result, on.root)
  expectOutputs(result, { outcome: 'success', changed: 'true', version: '1.0.0', 'previous-version': '' })
  showVerified('clock 1.0.0 is installed.')
  return result
}

async function updatePlugin(on: DemoStage): Promise<ActionResult> {
  showChapter(
    '3 of 5: update the plugin',
    'greeter has meanwhile written data/visits.txt. Now 1.1.0 is published and deployed.',
  )
  const visits = join(on.root, 'plugins/greeter/data/visits.txt')
  mkdirSync(join(visits, '..'))
  writeFileSync(visits, '42\n')
  await on.publish(RELEASES.greeter11)
  const result = await on.deploy('plugin', 'greeter', 'install.yaml')
  showResult(result, on.root)
  expectOutputs(result, { outcome: 'success', changed: 'true', version: '1.1.0', 'previous-version': '1.0.0' })
  expectEqual('the plugin’s own data', readFileSync(visits, 'utf8'), '42\n')
  showVerified('greeter 1.1.0 is installed, its own data was carried over, and 1.0.0 is retained as a snapshot.')
  return result
}

async function refuseTamperedArtifact(on: DemoStage): Promise<ActionResult> {
  showChapter(
    '4 of 5: a tampered artifact is refused',
    'greeter 1.2.0 is published; then one bit of it is flipped on the hub’s disk. The refusal below is what should happen.',
  )
  on.tamper(await on.publish(RELEASES.greeter12))
  const before = installedFiles(on)
  const result = await on.deploy('plugin', 'greeter', 'install.yaml')
  showResult(result, on.root)
  expectOutputs(result, { outcome: 'failed', changed: 'false', 'error-code': 'signature_mismatch' })
  expectEqual('what is installed', installedFiles(on), before)
  showVerified('Refused as expected (signature_mismatch); nothing was extracted, and the host is unchanged.')
  return result
}

async function takeFailedUpdateBack(on: DemoStage): Promise<ActionResult> {
  showChapter(
    '5 of 5: a failing step is rolled back',
    'greeter 2.0.0 requires the setting GREETER_TOKEN, which nobody has given. The plan’s last step finds that out,',
    'when the new files are in their place already. The failure below is what should happen.',
  )
  await on.publish(RELEASES.greeter2)
  const before = installedFiles(on)
  const result = await on.deploy('plugin', 'greeter', 'install-with-settings.yaml')
  showResult(result, on.root)
  expectOutputs(result, { outcome: 'rolled_back', changed: 'false', 'failed-step': 'settings' })
  expectEqual('what is installed', installedFiles(on), before)
  showVerified('Rolled back as expected; greeter 1.1.0 is in place again, byte for byte.')
  return result
}

async function showFleet(on: DemoStage): Promise<void> {
  showChapter(
    'The fleet, as the hub knows it',
    'The newest report of each host; app-1 tried greeter 2.0.0 and took it back.',
  )
  const entries = [...(await on.readFleet('plugin', 'greeter')), ...(await on.readFleet('service', 'clock'))]
  const rows = entries.map(({ host_id, kind, slug, version, status }) => [host_id, kind, slug, version, status])
  showTable('GET /deployments/{kind}/{slug}/hosts', [['HOST', 'KIND', 'SLUG', 'VERSION', 'STATUS'], ...rows])
  expectEqual(
    'the fleet',
    rows.map(row => row.join(' ')).join(', '),
    'app-1 plugin greeter 2.0.0 rolled_back, app-1 service clock 1.0.0 success',
  )
}

function showInShort(results: readonly ActionResult[]): void {
  const rows = results.map(({ outputs }, index) => [
    String(index + 1),
    outputs['install-path']?.split('/').slice(-2).join('/') ?? '',
    `${outputs['previous-version'] || 'nothing'} → ${outputs['version']}`,
    outputs['outcome'] ?? '',
    outputs['error-code'] ?? '',
  ])
  showChapter('In short')
  showTable('The five deployments', [['', 'WHAT', 'VERSION', 'OUTCOME', 'ERROR'], ...rows])
}

/** Everything of the host but our own records. */
function installedFiles(on: DemoStage): string {
  return fingerprint([join(on.root, 'plugins'), join(on.root, 'extensions')])
}

function expectOutputs(result: ActionResult, expected: Record<string, string>): void {
  expectEqual('the exit code', result.exitCode, expected['outcome'] === 'success' ? 0 : 1)
  for (const [name, value] of Object.entries({ ...expected, reported: 'true' })) {
    expectEqual(`the output ${name}`, result.outputs[name], value)
  }
}

function expectEqual<T>(what: string, found: T, expected: T): void {
  if (found !== expected) {
    throw new Error(`Expected ${what} to be ${JSON.stringify(expected)}, found ${JSON.stringify(found)}.`)
  }
}
