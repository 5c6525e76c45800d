import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { chmodSync, lchownSync, mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import { acceptedReports, commandsIn, readLocalReport } from '../harness/evidence.ts'
import { assertSucceeds } from '../harness/prepared-host.ts'
import { openTwoUsers, type TwoUsers, whyNoTwoUsers } from '../harness/two-users.ts'

const skip = whyNoTwoUsers() || whyLeftToCi()
const SHARED = { 'allow-shared-root': 'true' }
const POST = { phase: 'post', state: { 'deployment-id': randomUUID() } } as const

let stage: TwoUsers
const own = (): string => join(stage.root, '.hub-deploy')
const plant = (): string => join(stage.lair, 'plant')

/** Lists the host and the intruder's folder, which a symlink on the host may lead to. */
function listing(): Record<string, string>[] {
  return [listTree(stage.root), listTree(stage.lair)]
}

describe('a host that another user can write to', { skip }, () => {
  beforeEach(async () => {
    stage = await openTwoUsers()
  })
  afterEach(() => stage.close())

  it('is recovered by the post step if no other user has written to it', async () => {
    const { exitCode, log } = await stage.deployAsRunner({}, POST)
    assert.equal(exitCode, 0, log)
    assert.ok(stage.hasRun())
    assert.match(listTree(stage.root)['plugins/greeter/plugin.yaml'] ?? '', /1\.0\.0/)
  })

  /** Intrusions by another user at or in `.hub-deploy/`, which the action refuses even with `allow-shared-root`. */
  const intrusions: Record<string, () => void> = {
    'a folder of records'() {
      renameSync(own(), plant())
      stage.handOver(plant())
      chmodSync(stage.root, 0o2775)
      stage.intrude(`mv ${plant()} .hub-deploy`)
    },
    'a folder of records that everyone can enter'() {
      renameSync(own(), plant())
      stage.handOver(plant())
      chmodSync(stage.root, 0o2775)
      stage.intrude(`chmod -R a+rwX ${plant()} && mv ${plant()} .hub-deploy`)
    },
    'a symlink to a folder of records'() {
      renameSync(own(), plant())
      stage.handOver(plant())
      chmodSync(stage.root, 0o2775)
      stage.intrude(`chmod -R a+rwX ${plant()} && ln -s ${plant()} .hub-deploy`)
    },
    "a symlink to a folder of the runner's user"() {
      chmodSync(stage.root, 0o2775)
      stage.intrude('mv .hub-deploy kept && ln -s kept .hub-deploy')
    },
    'a folder of records in place of the real one'() {
      stage.operate(`cp -a .hub-deploy ${plant()}`)
      stage.handOver(plant())
      chmodSync(stage.root, 0o2775)
      stage.intrude(`chmod -R a+rwX ${plant()} && mv .hub-deploy kept && mv ${plant()} .hub-deploy`)
    },
    'a journal in a folder whose permissions were loosened'() {
      stage.operate('chmod -R a+rwX .hub-deploy')
      stage.intrude('cd .hub-deploy && cp journal.jsonl forged && mv -f forged journal.jsonl')
    },
    'a journal in a folder that was open for a while'() {
      stage.operate('chmod -R a+rwX .hub-deploy')
      stage.intrude('cd .hub-deploy && cp journal.jsonl forged && mv -f forged journal.jsonl')
      stage.operate('chmod 700 .hub-deploy')
    },
    'a line in a journal that was open for a while'() {
      stage.operate('chmod -R a+rwX .hub-deploy')
      stage.intrude('echo >> .hub-deploy/journal.jsonl')
      stage.operate('chmod 700 .hub-deploy')
    },
  }
  for (const name of [
    'staging',
    'trash',
    'reports',
    'outbox',
    'trees',
    'snapshots',
    'audit.jsonl',
    'installed.json',
    'lock',
  ]) {
    intrusions[`a symlink in place of ${name} in a folder that was open for a while`] = () => {
      stage.operate(`mkdir precious && echo mine > precious/file && chmod 770 .hub-deploy`)
      stage.intrude(`cd .hub-deploy && if [ -e ${name} ]; then mv ${name} away; fi && ln -s ../precious ${name}`)
      stage.operate('chmod 700 .hub-deploy')
    }
  }
  for (const [name, intrude] of Object.entries(intrusions)) {
    it(`is left alone by every step when the other user plants ${name}`, async () => {
      intrude()
      await assertUntouched()
      await assertSharingDoesNotHelp()
    })
  }

  it("is left alone when the other user plants a symlink to the runner's home as plugins/", async () => {
    stage.operate('mkdir home home/greeter')
    chmodSync(stage.root, 0o2775)
    stage.intrude('mv plugins away && ln -s home plugins')
    await assertUntouched()
    await assertSharingDoesNotHelp()
  })

  describe("whose plugins/ is a symlink of the runner's user that leads out of the root", () => {
    beforeEach(() => {
      const away = join(stage.folder, 'away')
      mkdirSync(away, { mode: 0o777 })
      chmodSync(away, 0o777)
      stage.operate(`mkdir ${away}/home && mv plugins ${away}/home && ln -s ${away}/home/plugins plugins`)
      chmodSync(away, 0o755)
    })

    it('is left alone, because a confined service can make such a symlink', async () => {
      await assertUntouched()
      assert.match((await stage.deployAsRunner()).log, /chown -h root [^ ]*\/plugins, or set allow-shared-root/)
    })

    it("is deployed to if the symlink is root's", async () => {
      lchownSync(join(stage.root, 'plugins'), 0, 0)
      assertSucceeds(await stage.deployAsRunner())
    })

    it('is deployed to if the operator accepts that', async () => {
      assertSucceeds(await stage.deployAsRunner(SHARED))
    })
  })

  it('is left alone when its root is shared; if the operator accepts that, the run succeeds with a warning', async () => {
    chmodSync(stage.root, 0o2775)
    await assertUntouched()
    const result = await stage.deployAsRunner(SHARED)
    assertSucceeds(result)
    assert.equal(readLocalReport(result).outcome, 'success')
    assert.match(commandsIn(result.log, 'warning').join('\n'), /group 54000.*allow-shared-root/)
  })
})

/**
 * Asserts that a dry run, the post step, and the main step with good and with malformed inputs fail, and leave the host
 * and the intruder's folder as they are.
 */
async function assertUntouched(): Promise<void> {
  const before = listing()
  const refusals = [await refuse(), await refuse({ 'keep-snapshots': 'some' }, 'invalid_input')]
  const reported = acceptedReports(stage).slice(-2)
  for (const [index, { error_message, status }] of reported.entries()) {
    assert.equal(status, 'failed')
    assert.match(error_message ?? '', /No plugin or service below project-root was changed\.$/, String(index))
  }
  for (const { outputs } of refusals) {
    assert.equal(outputs['reported'], 'true')
    assert.match(outputs['report-path'] ?? '', /\/hub-deploy-report-[^/]+\.json$/)
  }
  await refuse({ 'dry-run': 'true' })
  const post = await stage.deployAsRunner({}, POST)
  assert.equal(post.exitCode, 1, post.log)
  assert.match(commandsIn(post.log, 'error').join('\n'), /title=unsafe_host/)
  assert.deepEqual(listing(), before)
  assert.ok(!stage.hasRun())
}

async function assertSharingDoesNotHelp(): Promise<void> {
  const before = listing()
  await refuse(SHARED)
  assert.equal((await stage.deployAsRunner(SHARED, POST)).exitCode, 1)
  assert.deepEqual(listing(), before)
  assert.ok(!stage.hasRun())
}

async function refuse(inputs: Record<string, string> = {}, code = 'unsafe_host'): Promise<ActionResult> {
  const result = await stage.deployAsRunner(inputs)
  const { outcome, changed, 'error-code': errorCode } = result.outputs
  assert.deepEqual([result.exitCode, outcome, changed, errorCode], [1, 'failed', 'false', code], result.log)
  return result
}
