import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { byExtent } from '../../extent.ts'
import { assertNothingStrays, type Listing, listLive, readReports } from '../harness/evidence.ts'
import { type Ext4, mountExt4, whyNoExt4 } from '../harness/mounts.ts'
import { copyBuild, copyHost, type HostCopy, type HostOrigin } from '../harness/prepared-host.ts'
import { filesWith, openProjectStage, type Parts } from '../harness/project-stage.ts'
import { countOutcomes } from '../harness/random.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, writeFiles } from '../harness/stage.ts'
import { tamper, tamperWithRecord, whyNoStrace } from '../harness/strace.ts'

/**
 * One in this many successive cases is tested. The number is never a multiple of three, so that each way to continue is
 * tested.
 */
const SAMPLED = byExtent({ sample: 11, ci: 4, full: 1 })
const FOLLOWED_BY = [['post'], ['next run'], ['post', 'next run']] as const
/** Disks, and the shell text that fills each of them; `$0` is a folder on the disk. */
const DISKS: readonly (Ext4 & { what: string; fill: string })[] = [
  { what: 'byte, in blocks of 1 KiB', blockBytes: 1024, megabytes: 24, fill: fillBytes() },
  { what: 'byte, in blocks of 4 KiB', blockBytes: 4096, megabytes: 24, fill: fillBytes() },
  { what: 'inode', blockBytes: 1024, megabytes: 24, inodes: 512, fill: fillInodes() },
]

type Disk = (typeof DISKS)[number]

/** A host to update. The update moves the host's own files into the new version. */
interface Prepared {
  origin: HostOrigin
  newVersion: string
  close(): Promise<void>
}

const PREPARED: Record<string, () => Promise<Prepared>> = {
  'a plugin with kept paths': preparePlugin,
  'a project of three parts': prepareProject,
}

for (const [what, prepare] of Object.entries(PREPARED)) {
  describe(
    `an update of ${what} on an ext4 file system that a step fills up, killed before any record of its undo`,
    {
      skip: whyNoStrace() || whyNoExt4(),
    },
    () => sweepUndo(prepare),
  )
}

function sweepUndo(prepare: () => Promise<Prepared>): void {
  let prepared: Prepared
  let old: Listing
  before(async () => {
    prepared = await prepare()
    old = listLive(prepared.origin.root)
  })
  after(() => prepared.close())

  for (const [index, disk] of DISKS.entries()) {
    it(`is exactly old and never inconsistent without a free ${disk.what}`, async t => {
      const records = await census(t, disk)
      const cases = records.flatMap(nth => FOLLOWED_BY.map(followers => ({ nth, followers })))
      const swept = cases.filter((_, at) => at % SAMPLED === index % SAMPLED)
      const outcomes: string[] = []
      for (const { nth, followers } of swept) {
        await t.test(`record ${nth}, then ${followers.join(' and ')}`, async own => {
          outcomes.push(await killAndFollow(own, disk, nth, followers))
        })
      }
      t.diagnostic(`${swept.length} of ${cases.length} kills: ${countOutcomes(outcomes)}`)
    })
  }

  /**
   * The numbers of the failed step's journal record and of all later records, which the undo writes. They are counted
   * as `tamperWithRecord` counts them.
   */
  async function census(t: TestContext, disk: Disk): Promise<number[]> {
    const host = copyTo(t, disk, 'census')
    const journal = join(host.root, '.hub-deploy/journal.jsonl')
    await host.deploy({}, tamper(journal, 'unlink', 'signal=KILL'))
    const lines = readFileSync(journal, 'utf8').split('\n').slice(0, -1)
    const failed = lines.findIndex(line => line.includes('"action":"provision","status":"failed"'))
    assert.ok(
      failed > 0 && lines.length - failed > 7,
      `the journal must have more than 7 records from the failed step onwards, but has ${lines.length} records in all`,
    )
    return lines.map((_, nth) => nth).slice(failed)
  }

  /**
   * Kills an update in its undo, and lets the followers recover the host while something else takes all space that is
   * free between them. Returns the final outcome of the killed deployment.
   */
  async function killAndFollow(t: TestContext, disk: Disk, nth: number, followers: readonly string[]): Promise<string> {
    const host = copyTo(t, disk, `killed-${nth}`)
    const killed = await host.deploy({}, tamperWithRecord(host.root, nth, 'signal=KILL'))
    assert.equal(killed.signal, 'SIGKILL', killed.log)
    const mounted = join(host.root, '..')
    for (const follower of followers) {
      spawnSync('/bin/sh', ['-c', disk.fill, mounted])
      const result = follower === 'post' ? await host.post() : await host.deploy()
      assertTruthful(result)
      assert.deepEqual(listLive(host.root), old, result.log)
    }
    for (const name of ['filler', 'fillers', 'armed']) rmSync(join(mounted, name), { force: true, recursive: true })
    const next = await host.deploy()
    assert.equal(next.outputs['outcome'], 'success', next.log)
    assertNothingStrays(host.root)
    const reports = [...readReports(host.root).values()]
    assert.deepEqual(
      reports.filter(({ outcome }) => outcome === 'inconsistent' || outcome === 'interrupted'),
      [],
    )
    return readReports(host.root).get(killed.outputs['deployment-id'] ?? '')?.outcome ?? 'without a report'
  }

  function copyTo(t: TestContext, disk: Disk, name: string): HostCopy {
    const mounted = mountExt4(t, disk)
    writeFileSync(join(mounted, 'armed'), '')
    const host = copyHost(prepared.origin, name, join(mounted, 'host'))
    writeFileSync(join(host.workspace.path, 'host.yaml'), hostConfig(mounted, disk.fill))
    return host
  }
}

function assertTruthful({ outputs, log }: ActionResult): void {
  assert.notEqual(outputs['outcome'], 'inconsistent', log)
  assert.doesNotMatch(log, /inconsistent/)
}

/** Takes every free block. */
function fillBytes(): string {
  const more = 'cat /dev/zero >>"$0/filler" 2>/dev/null'
  return `${more}; sync -f "$0"; ${more}`
}

/** Takes every free inode. */
function fillInodes(): string {
  return 'mkdir "$0/fillers" 2>/dev/null; n=$(ls "$0/fillers" | wc -l); while : >"$0/fillers/$n"; do n=$((n + 1)); done 2>/dev/null'
}

/** A host config whose provision command fills the disk, and fails. */
function hostConfig(mounted: string, fill: string): string {
  const script = `[ -e "$0/armed" ] || exit 0; ${fill}; exit 1`
  const provision = (id: string) => ({ [id]: { command: ['/bin/sh', '-c', script, mounted] } })
  return JSON.stringify({ version: 1, provision: { ...provision('greeter'), ...provision('cart') } })
}

async function preparePlugin(): Promise<Prepared> {
  const stage = await openStage()
  const repository = copyBuild(stage)
  for (const version of ['0.9.0', '1.0.0', '2.0.0']) await stage.publish(version, pluginFiles(version))
  for (const version of ['0.9.0', '1.0.0']) await install(stage.deploy({ version }, { repository }))
  writeFiles(join(stage.root, 'plugins/greeter'), { 'data/visitors': '17\n', '.env': 'LANGUAGE=en\n' })
  const plan = `${PLUGIN_PLAN}  - {id: work, action: provision, plugin: greeter, depends_on: [files]}\n`
  const inputs = { version: '2.0.0', 'host-config': 'host.yaml' }
  const origin = { stage, repository, root: stage.root, plan, inputs }
  return { origin, newVersion: '2.0.0', close: () => stage.close() }
}

async function prepareProject(): Promise<Prepared> {
  const stage = await openProjectStage()
  const repository = copyBuild(stage)
  const filling: Parts = { steps: ['action: provision, plugin: cart'] }
  for (const [version, parts] of [
    ['1.0.0', {}],
    ['2.0.0', {}],
    ['3.0.0', filling],
  ] as const) {
    await stage.publish(version, filesWith(version, parts))
    if (version !== '3.0.0') await install(stage.deploy({ version }, { repository }))
  }
  writeFiles(stage.root, { 'plugins/cart/data/orders': '17\n', 'extensions/mailer/data/queue': '17 letters\n' })
  assert.ok(existsSync(join(stage.root, '.hub-deploy/snapshots/extensions/mailer')))
  const inputs = { version: '3.0.0', 'host-config': 'host.yaml' }
  return { origin: { stage, repository, root: stage.root, inputs }, newVersion: '3.0.0', close: () => stage.close() }
}

async function install(run: Promise<ActionResult>): Promise<void> {
  const { exitCode, log } = await run
  assert.equal(exitCode, 0, log)
}
