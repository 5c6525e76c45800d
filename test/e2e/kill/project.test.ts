import assert from 'node:assert/strict'
import { mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { byExtent } from '../../extent.ts'
import {
  assertExactly,
  assertNothingStrays,
  assertReported,
  assertSettled,
  type Listing,
  listLasting,
  listLive,
  readReports,
} from '../harness/evidence.ts'
import { copyBuild, copyHost, type HostCopy } from '../harness/prepared-host.ts'
import { acceptedProjectReports, assertKeptSecret } from '../harness/project-evidence.ts'
import { filesWith, openProjectStage, type Parts, type ProjectStage } from '../harness/project-stage.ts'
import { countOutcomes } from '../harness/random.ts'
import { writeFiles } from '../harness/stage.ts'
import { killBefore, openTraces, type TracedCall, type Traces, whyNoStrace } from '../harness/strace.ts'

const SAMPLED = byExtent({ sample: 23, ci: 4, full: 1 })
const WITHOUT_MAILER: Parts = { included: ['cart', 'till'] }
const SETTINGS: Parts = {
  steps: ['action: write_env, plugin: cart, from: plugins/cart/.env.template'],
  more: { 'plugins/cart/.env.template': 'COLOUR=blue\n' },
}

const HOSTS_OWN = {
  'plugins/cart/data/orders': '17\n',
  'plugins/neighbour/plugin.yaml': 'name: neighbour\n',
  'extensions/mailer/data/queue': '17 letters\n',
  'extensions/mailer.env': 'A=1\n',
  'plugins/till.env': 'B=1\n',
}

interface Update {
  /** The earlier versions, in order. The host creates its own files after the first version. */
  history: readonly Parts[]
  to: Parts
  /** The plugins' directory in the manifest of the last version; default `plugins`. */
  pluginsDirname?: string
  /** One in this many successive renames and links is tested. */
  oneIn: number
}

const UPDATES: Record<string, Update> = {
  'of all its parts': { history: [{}], to: SETTINGS, oneIn: SAMPLED },
  'that removes a part': {
    history: [{}],
    to: { ...SETTINGS, ...WITHOUT_MAILER },
    oneIn: byExtent({ sample: 7, ci: 3, full: 1 }),
  },
  'after the operator has moved its plugins to another directory': {
    history: [{}],
    to: SETTINGS,
    pluginsDirname: 'addons',
    oneIn: byExtent({ sample: 11, ci: 2, full: 1 }),
  },
  'that restores a part': { history: [{}, WITHOUT_MAILER], to: SETTINGS, oneIn: SAMPLED },
}

for (const [name, swept] of Object.entries(UPDATES)) {
  describe(`a project update ${name}, killed before any one of its switches`, { skip: whyNoStrace() }, () =>
    sweepKills(swept),
  )
}

/** Moves the project's plugins and their settings, as the operator must do when their directory changes. */
function movePlugins(root: string, directory: string): void {
  mkdirSync(join(root, directory))
  for (const name of ['cart', 'till', 'till.env']) renameSync(join(root, 'plugins', name), join(root, directory, name))
}

function inDirectory(files: Record<string, string>, directory = 'plugins'): Record<string, string> {
  return Object.fromEntries(
    Object.entries(files).map(([path, text]) => [path.replace(/^plugins\//, `${directory}/`), text]),
  )
}

function sweepKills({ history, to, pluginsDirname, oneIn }: Update): void {
  const version = `${history.length + 1}.0.0`
  let stage: ProjectStage
  let traces: Traces<HostCopy>
  let repository: string
  let old: Listing
  let reference: Listing
  let calls: readonly TracedCall[]

  before(async () => {
    stage = await openProjectStage()
    traces = openTraces()
    repository = copyBuild(stage)
    for (const [index, parts] of history.entries()) await install(`${index + 1}.0.0`, parts)
    if (pluginsDirname !== undefined) movePlugins(stage.root, pluginsDirname)
    await stage.publish(version, inDirectory(filesWith(version, to), pluginsDirname), { pluginsDirname })
    old = listLive(stage.root)
    const host = copy('reference')
    calls = (await traces.run(host, update)).calls.filter(isSwitch)
    reference = listLasting(host.root)
  })

  after(async () => {
    traces.close()
    await stage.close()
  })

  for (const recoveredBy of ['the next run', 'post'] as const) {
    it(`is old everywhere or new everywhere after ${recoveredBy}`, { concurrency: 2 }, async t => {
      assert.ok(calls.length >= 13, `the census must see at least 13 renames and links, but saw ${calls.length}`)
      const offset = recoveredBy === 'post' ? 0 : 5
      const swept = calls.filter((_, at) => at % oneIn === offset % oneIn)
      const outcomes: string[] = []
      const kill = async (call: TracedCall, at: number) => {
        outcomes.push(await killAndRecover(call, copy(`${offset}-${at}`), recoveredBy))
      }
      await Promise.all(swept.map((call, at) => t.test(call.text, () => kill(call, at))))
      t.diagnostic(`${swept.length} of ${calls.length} switches: ${countOutcomes(outcomes)}`)
    })
  }

  async function install(earlier: string, parts: Parts): Promise<void> {
    await stage.publish(earlier, filesWith(earlier, parts))
    const { exitCode, log } = await stage.deploy({}, { repository })
    assert.equal(exitCode, 0, log)
    if (earlier === '1.0.0') writeFiles(stage.root, HOSTS_OWN)
  }

  it('counts as installed for the next run when it was killed after its commit', async () => {
    const records = calls.find(({ text }) => /rename\w*\(.*installed\.json/.test(text))
    assert.ok(records)
    const host = copy('committed')
    await traces.run(host, update, killBefore(records))
    const { outputs, exitCode } = await host.deploy()
    assert.deepEqual([exitCode, outputs['changed'], outputs['previous-version']], [0, 'false', version])
  })

  function copy(name: string): HostCopy {
    return copyHost({ stage, repository, root: stage.root, inputs: { version } }, name)
  }

  /** Kills an update, and asserts that it is recovered. Returns the final outcome of the killed deployment. */
  async function killAndRecover(call: TracedCall, host: HostCopy, recoveredBy: string): Promise<string> {
    const { result } = await traces.run(host, update, killBefore(call))
    const id = result.outputs['deployment-id'] ?? ''
    assert.equal(result.signal, 'SIGKILL', result.log)
    if (recoveredBy === 'post') {
      const { exitCode, log } = await host.post()
      assert.equal(exitCode, 0, log)
      assertOneVersion(host, id)
    }
    assertReported(host.root, await host.deploy())
    assert.deepEqual(listLasting(host.root), reference)
    assertNothingStrays(host.root)
    assertHubHeard(id, host)
    await assertSettled(host.root, () => host.deploy())
    assertKeptSecret({ ...stage, root: host.root, workspace: host.workspace }, [result.log], [])
    return readReports(host.root).get(id)?.outcome ?? 'not begun'
  }

  /** Asserts that the live trees are all new if the dead run's report says `success`, and otherwise all old. */
  function assertOneVersion({ root }: HostCopy, id: string): void {
    const outcome = readReports(root).get(id)?.outcome
    const found = assertExactly(root, { old, new: liveIn(reference) })
    assert.equal(found, outcome === 'success' ? 'new' : 'old', outcome)
  }

  function assertHubHeard(id: string, { root }: HostCopy): void {
    const report = readReports(root).get(id)
    const row = acceptedProjectReports(stage).find(({ deployment_id }) => deployment_id === id)
    assert.equal(row?.status, report?.status)
  }
}

function update(host: HostCopy, run: Parameters<HostCopy['deploy']>[1]): Promise<ActionResult> {
  return host.deploy({}, run)
}

/** Leaves out the file of compiled code, which only the first run of a build replaces. */
function isSwitch({ name, text }: TracedCall): boolean {
  return /^(rename|link)/.test(name) && !text.includes('/hub-deploy/compiled')
}

function liveIn(listing: Listing): Listing {
  return Object.fromEntries(Object.entries(listing).filter(([path]) => /^(plugins|addons|extensions)(\/|$)/.test(path)))
}
