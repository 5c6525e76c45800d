import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { byExtent } from '../../extent.ts'
import { assertNothingStrays } from '../harness/evidence.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from '../harness/stage.ts'
import { ONE_WORKER, whyNoStrace } from '../harness/strace.ts'

const KILLING = join(import.meta.dirname, '../harness/kill-before-rename.mjs')

const PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
  - {id: work, action: provision, plugin: greeter, depends_on: [env]}
`

for (const errno of byExtent({ sample: ['EPERM'], ci: ['EPERM', 'EOPNOTSUPP', 'ENOSYS'] }))
  describe(`on a file system without hard links (${errno})`, { skip: whyNoStrace() }, () => {
    let stage: Stage
    beforeEach(async () => {
      stage = await openStage()
      for (const version of ['1.0.0', '2.0.0'])
        await stage.publish(version, pluginFiles(version, { '.env.template': 'COLOUR=blue\n' }))
      await stage.deploy({ version: '1.0.0' })
      stage.writePlan(PLAN)
    })
    afterEach(() => stage.close())

    it('a deployment creates the settings', async () => {
      await assertSucceeds()
    })

    it('a rollback removes the settings that it created', async () => {
      assert.equal((await deployWhile('exit 1')).outputs['outcome'], 'rolled_back')
      assertOld()
    })

    const kills: Record<string, () => Promise<ActionResult>> = {
      'after it created the settings': () => deployWhile('kill -9 $PPID; sleep 1'),
      'after it claimed the name of the settings file': () => deployWhile('exit 0', killedAtClaim()),
    }
    for (const [when, kill] of Object.entries(kills)) {
      it(`a recovery removes the settings of a run that was killed ${when}`, async () => {
        assert.equal((await kill()).outputs['outcome'], 'interrupted')
        assert.ok(existsSync(settings()))
        await stage.deploy({}, { phase: 'post', state: { 'deployment-id': randomUUID() }, ...withoutLinks() })
        assertOld()
        await assertSucceeds()
      })
    }

    it('a recovery leaves settings that an operator wrote where a killed run had claimed their name', async () => {
      await deployWhile('exit 0', killedAtClaim())
      assert.equal(readFileSync(settings(), 'utf8'), '')
      writeFileSync(settings(), 'COLOUR=red\n')
      await assertSucceeds()
      assert.equal(readFileSync(settings(), 'utf8'), 'COLOUR=red\n')
    })

    const settings = (): string => join(stage.root, 'plugins/greeter.env')

    function withoutLinks(): Partial<ActionRun> {
      const links = ['-e', `inject=?link,linkat:error=${errno}`]
      return { through: ['strace', '-f', '-qq', '-o', '/dev/null', ...links], env: ONE_WORKER }
    }

    /** Kills the run when it has claimed the name of the settings file with an empty file. */
    function killedAtClaim(): Partial<ActionRun> {
      const { env, ...run } = withoutLinks()
      return { ...run, env: { ...env, NODE_OPTIONS: `--import=${KILLING}`, KILL_FROM: 'greeter.env' } }
    }

    async function deployWhile(script: string, run = withoutLinks()): Promise<ActionResult> {
      const config = { version: 1, provision: { greeter: { command: ['/bin/sh', '-c', script] } } }
      writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify(config))
      return await stage.deploy({ 'host-config': 'host.yaml' }, run)
    }

    async function assertSucceeds(): Promise<void> {
      const { outputs, log } = await deployWhile('exit 0')
      assert.equal(outputs['outcome'], 'success', log)
      assert.match(readFileSync(join(stage.root, 'plugins/greeter/plugin.yaml'), 'utf8'), /2\.0\.0/)
      assert.match(readFileSync(settings(), 'utf8'), /^COLOUR=/)
      assertNothingStrays(stage.root)
    }

    function assertOld(): void {
      assert.match(readFileSync(join(stage.root, 'plugins/greeter/plugin.yaml'), 'utf8'), /1\.0\.0/)
      assert.ok(!existsSync(settings()))
      assertNothingStrays(stage.root)
    }
  })
