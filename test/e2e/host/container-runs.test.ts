import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { whyRightsAreLeftToCi } from '../../extent.ts'
import { acceptedReports, readReports } from '../harness/evidence.ts'
import { onceInLog } from '../harness/processes.ts'
import { openInstalled, pluginFiles, type Stage } from '../harness/stage.ts'
import { openSlowHub } from '../harness/untrusted-hub.ts'

/** Runs a command in a new pid namespace, as in a container. The command ends with this process. */
const CONTAINER = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child']

function whyNoNamespaces(): string | false {
  const [program = '', ...args] = CONTAINER
  const left = whyRightsAreLeftToCi()
  return left === false && spawnSync(program, [...args, 'true']).status !== 0 ? 'needs pid namespaces' : left
}

describe('a run that downloads, on a host that containers share', { skip: whyNoNamespaces() }, () => {
  let stage: Stage
  before(async () => {
    stage = await openInstalled(pluginFiles('1.0.0'))
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
  })
  after(() => stage.close())

  const hasJournal = () => existsSync(join(stage.root, '.hub-deploy/journal.jsonl'))
  const outcomes = () => [...readReports(stage.root).values()].map(({ outcome }) => outcome)

  it('keeps another run waiting if both runs are in containers', async t => {
    const hub = await openSlowHub(t, stage.hub.url)
    const slow = stage.deploy({ version: '2.0.0', 'hub-url': hub.url }, { through: CONTAINER })
    await hub.asked
    const waiting = onceInLog('Waiting for', () => hub.letGo())
    const { outputs, log } = await stage.deploy({ version: '1.0.0' }, { through: CONTAINER, ...waiting })
    assert.deepEqual([outputs['outcome'], outputs['previous-version']], ['success', '2.0.0'], log)
    assert.equal((await slow).outputs['outcome'], 'success', (await slow).log)
    assert.deepEqual(outcomes(), ['success', 'success', 'success'])
  })

  const killed = [
    { where: 'in a container', by: 'the next run in a container', first: CONTAINER, next: CONTAINER },
    { where: 'in a container', by: 'the next run on the machine', first: CONTAINER, next: [] },
    { where: 'on the machine', by: 'the next run in a container', first: [], next: CONTAINER },
  ]
  for (const [index, run] of killed.entries())
    it(`is reported by ${run.by} if it was killed ${run.where}`, async t => {
      const known = outcomes().length
      const hub = await openSlowHub(t, stage.hub.url)
      const started = Promise.withResolvers<number>()
      const slow = stage.deploy(
        { version: '2.0.0', 'hub-url': hub.url, 'deployments-url': stage.hub.url },
        { through: run.first, onStart: started.resolve },
      )
      await hub.asked
      process.kill(await started.promise, 'SIGKILL')
      await slow
      assert.ok(hasJournal())
      const { outputs, log } = await stage.deploy({ version: '2.0.0' }, { through: run.next })
      assert.deepEqual([outputs['outcome'], hasJournal()], ['success', false], log)
      assert.deepEqual(outcomes().slice(known), ['failed', 'success'])
      assert.equal(acceptedReports(stage).filter(({ status }) => status === 'failed').length, index + 1)
    })
})
