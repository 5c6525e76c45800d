import assert from 'node:assert/strict'
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from '../harness/stage.ts'

/**
 * Services in Perl, because every Debian has Perl. Each loops as fast as it can and never ends by itself. `$place` is
 * the installed directory.
 */
const SERVICES = {
  /** Reaches the installed directory by its path, and creates the directory and its `data` if they are missing. */
  'that re-creates its directory and data whenever they are missing': `
    for (;;) { mkdir $place; mkdir "$place/data"; if (open my $log, ">>", "$place/data/log") { print $log "x"; } }`,
  /** Works in the tree in which it was started, wherever that tree is moved. */
  'that re-creates data in its working folder': `
    chdir $place; for (;;) { mkdir "data"; if (open my $log, ">>", "data/log") { print $log "x"; } }`,
  /** Repeatedly replaces the kept folder with a new folder. */
  'that repeatedly replaces the whole of data': `
    chdir $place;
    for (my $n = 0;; $n++) {
      mkdir "next"; if (open my $log, ">", "next/log") { print $log $n; }
      rename "data", "last"; rename "next", "data"; unlink "last/log"; rmdir "last";
    }`,
  /** Files of the installed version are missing half of the time. */
  'that renames its installed files back and forth': `
    chdir $place; for (;;) { rename "src", "last"; rename "last", "src"; }`,
}
const BUSY_SERVICES = Object.keys(SERVICES) as (keyof typeof SERVICES)[]

/** The reason why these services cannot run here, for a test's `skip`; false if they can. */
function whyNoPerl(): string | false {
  return spawnSync('perl', ['-e', '1']).status === 0 ? false : 'needs perl'
}

/** Runs a service in the installed directory `place` for as long as `act` takes. */
async function whileBusy<T>(
  t: TestContext,
  { service, place }: { service: keyof typeof SERVICES; place: string },
  act: () => Promise<T>,
): Promise<T> {
  const script = `$| = 1; my $place = $ARGV[0]; print "busy\\n"; ${SERVICES[service]}`
  const child = spawn('perl', ['-e', script, place], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => child.kill('SIGKILL'))
  await once(createInterface({ input: child.stdout }), 'line')
  try {
    return await act()
  } finally {
    await ended(child)
  }
}

async function ended(child: ChildProcess): Promise<void> {
  const exit = once(child, 'exit')
  child.kill('SIGKILL')
  await exit
}

/** The number of updates, and of rollbacks, next to each service. */
const ROUNDS = 3
const FAILING_PLAN = `${PLUGIN_PLAN}  - {id: work, action: provision, plugin: greeter, depends_on: [files]}\n`

describe('a deployment next to a service', { skip: whyLeftToCi() || whyNoPerl() }, () => {
  let stage: Stage
  before(async () => {
    stage = await openStage()
    for (const version of ['1.0.0', '2.0.0']) await stage.publish(version, pluginFiles(version))
    const config = { version: 1, provision: { greeter: { command: ['false'] } } }
    writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
  })
  after(() => stage.close())

  for (const [index, service] of BUSY_SERVICES.entries()) {
    const root = (): string => join(stage.folder, `root-${index}`)
    const place = (): string => join(root(), 'plugins/greeter')
    const deploy = async (plan: string, version: string): Promise<ActionResult> => {
      stage.writePlan(plan)
      return await stage.deploy({ 'project-root': root(), 'host-config': 'host.yaml', version })
    }
    const deployBusy = async (t: TestContext, plan: string, version: string): Promise<ActionResult> =>
      await whileBusy(t, { service, place: place() }, () => deploy(plan, version))

    it(`${service} succeeds every time`, async t => {
      assert.equal((await deploy(PLUGIN_PLAN, '1.0.0')).exitCode, 0)
      for (let round = 1; round <= ROUNDS; round++) {
        const version = round % 2 === 1 ? '2.0.0' : '1.0.0'
        assertRuns(await deployBusy(t, PLUGIN_PLAN, version), 'success', { place: place(), version })
      }
    })

    it(`${service} rolls back every time`, async t => {
      rmSync(root(), { recursive: true, force: true })
      assert.equal((await deploy(PLUGIN_PLAN, '1.0.0')).exitCode, 0)
      for (let round = 1; round <= ROUNDS; round++)
        assertRuns(await deployBusy(t, FAILING_PLAN, '2.0.0'), 'rolled_back', { place: place(), version: '1.0.0' })
    })
  }
})

function assertRuns(
  { outputs, log }: ActionResult,
  outcome: string,
  { place, version }: { place: string; version: string },
): void {
  assert.equal(outputs['outcome'], outcome, log)
  assert.match(readFileSync(join(place, 'plugin.yaml'), 'utf8'), new RegExp(version.replaceAll('.', '\\.')), log)
}
