import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

const PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/etc/env, depends_on: [files]}\n`

/**
 * A program that acts like a host framework: it looks for plugins in the directory that its own file names, and injects
 * the `.env` of a plugin's directory.
 */
const HOST = `
import os, re, runpy, sys
root = sys.argv[1]
text = open(os.path.join(root, 'integration.yaml')).read()
plugins = os.path.join(root, re.search(r'directory: (\\S+)', text).group(1))
for name in sorted(os.listdir(plugins)):
    path = os.path.join(plugins, name)
    if name.startswith('_') or not os.path.isdir(path):
        continue
    if 'inject: true' in open(os.path.join(path, 'plugin.yaml')).read():
        for line in open(os.path.join(path, '.env')):
            key, _, value = line.strip().partition('=')
            os.environ[key] = value.strip("'")
    runpy.run_path(os.path.join(path, 'src/main.py'))
`

const hasPython = spawnSync('python3', ['--version']).status === 0

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  stage.writePlan(PLAN)
  writeFiles(stage.root, { 'integration.yaml': 'plugins:\n  directory: ./app\n' })
})
afterEach(() => stage.close())

async function deploy(version: string, inputs: Record<string, string> = {}): Promise<ActionResult> {
  const more = {
    'plugin.yaml': `name: greeter\nversion: "${version}"\nenvironment: {required: [COLOUR]}\nenvconfiguration: {inject: true}\n`,
    'etc/env': 'COLOUR=\n',
    'src/main.py': `import os\nprint("${version}", os.environ["COLOUR"])\n`,
  }
  await stage.publish(version, pluginFiles(version, more))
  const result = await stage.deploy(inputs)
  assert.equal(result.exitCode, 0, result.log)
  return result
}

function load(): string {
  const { stdout, stderr } = spawnSync('python3', ['-c', HOST, stage.root], { encoding: 'utf8' })
  return stdout || stderr
}

describe('a plugin whose host injects its settings', { skip: !hasPython && 'needs python3' }, () => {
  it('loads after its first deployment, after an update, and after a run that only writes its missing settings', async () => {
    await deploy('1.0.0', { settings: 'COLOUR=deep blue' })
    assert.equal(load(), '1.0.0 deep blue\n')
    writeFiles(stage.root, { 'app/greeter/.env': 'COLOUR=red # mine\n' })
    await deploy('2.0.0')
    assert.equal(load(), '2.0.0 red # mine\n')
    rmSync(join(stage.root, 'app/greeter/.env'))
    const again = await stage.deploy()
    assert.deepEqual([again.exitCode, again.outputs['changed']], [0, 'true'], again.log)
    assert.equal(load(), '2.0.0 deep blue\n')
    assert.equal((await stage.deploy()).outputs['changed'], 'false')
  })

  it('causes a warning if the plan does not write the settings', async () => {
    stage.writePlan(PLUGIN_PLAN)
    const { log } = await deploy('1.0.0')
    assert.match(log, /::warning.*app\/greeter\/\.env only \(envconfiguration\.inject/)
    assert.ok(!existsSync(join(stage.root, 'app/greeter/.env')))
    assert.match(readFileSync(join(stage.root, 'app/greeter/plugin.yaml'), 'utf8'), /1\.0\.0/)
  })
})
