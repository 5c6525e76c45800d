import assert from 'node:assert/strict'
import { chmodSync, existsSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { runAction } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import { commandsIn } from '../harness/evidence.ts'
import { assertRefuses } from '../harness/refusal.ts'
import { installedRow, openInstalled, pluginFiles, rollBack, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: Stage
let place: string

/** A host that runs 1.0.0, with the host's own files in the installed directory. */
beforeEach(async () => {
  stage = await openInstalled(pluginFiles('1.0.0'))
  place = join(stage.root, 'plugins/greeter')
  writeFiles(place, { '.env': 'SECRET=1\n', 'data/db/rows': 'mine', 'etc/local.conf': 'mine', stray: 'mine' })
  chmodSync(join(place, '.env'), 0o640)
})
afterEach(() => stage.close())

async function update(files: Record<string, string>, inputs: Record<string, string> = {}) {
  await stage.publish('2.0.0', pluginFiles('2.0.0', files))
  const result = await stage.deploy(inputs)
  assert.equal(result.exitCode, 0, result.log)
  return result
}

function textOf(path: string): string | undefined {
  return existsSync(join(place, path)) ? readFileSync(join(place, path), 'utf8') : undefined
}

describe('keep-paths', () => {
  it('default to .env and data, which move with their modes, while the rest goes with the old version', async () => {
    const { ino } = statSync(join(place, 'data/db/rows'))
    await update({})
    assert.deepEqual(['.env', 'data/db/rows', 'etc/local.conf', 'stray'].map(textOf), [
      'SECRET=1\n',
      'mine',
      undefined,
      undefined,
    ])
    assert.equal(statSync(join(place, '.env')).mode & 0o777, 0o640)
    assert.equal(statSync(join(place, 'data/db/rows')).ino, ino)
    assert.equal(readFileSync(join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0/stray'), 'utf8'), 'mine')
  })

  it('keep a virtual environment of Python; without them, it is in the snapshot, and one sentence says both', async () => {
    const modules = Array.from({ length: 600 }, (_, at) => [`.venv/lib/python3/site-packages/m${at}.py`, ''])
    const make = (): void => {
      writeFiles(place, {
        ...Object.fromEntries(modules),
        '.venv/pyvenv.cfg': 'home = /usr/bin\n',
        '.venv/bin/pip': '',
      })
      symlinkSync('/usr/bin/python3', join(place, '.venv/bin/python3'))
    }
    const count = (folder: string): number => Object.keys(listTree(join(folder, '.venv'))).length
    make()
    const kept = await update({}, { 'keep-paths': '.venv' })
    assert.doesNotMatch(kept.log, /site-packages/)
    assert.equal(count(place), 607)
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    rmSync(join(place, '.venv'), { recursive: true })
    assert.equal((await stage.deploy({ version: '3.0.0' })).exitCode, 0)
    make()
    await stage.publish('4.0.0', pluginFiles('4.0.0'))
    const { exitCode, log } = await stage.deploy({ version: '4.0.0' })
    assert.equal(exitCode, 0, log)
    assert.match(
      log,
      /plugins\/greeter\/\.venv \(\d+ files added\) and \d+ more\. An update moves plugins\/greeter\/\.venv into a snapshot, unless keep-paths names it\./,
    )
    assert.equal(existsSync(join(place, '.venv')), false)
    assert.equal(count(join(stage.root, '.hub-deploy/snapshots/plugins/greeter/3-3.0.0')), 607)
  })

  it('may be nested next to files of the artifact', { skip: ONLY_IN_CI }, async () => {
    await update({ 'etc/default.conf': 'shipped' }, { 'keep-paths': 'etc/local.conf\nstray\n\nnot-there/at-all\n' })
    assert.deepEqual(['etc/local.conf', 'etc/default.conf', 'stray', '.env', 'not-there'].map(textOf), [
      'mine',
      'shipped',
      'mine',
      'SECRET=1\n',
      undefined,
    ])
  })

  it('win over files of the same name in the artifact, with a notice', async () => {
    const { log } = await update({ 'data/db/rows': 'shipped', 'data/other': 'shipped' })
    assert.deepEqual(['data/db/rows', 'data/other'].map(textOf), ['mine', undefined])
    assert.match(commandsIn(log, 'notice').join(), /data/)
  })

  it('are installed from the artifact if the host has none', { skip: ONLY_IN_CI }, async () => {
    await update({ 'seed/rows': 'shipped' }, { 'keep-paths': 'seed' })
    assert.equal(textOf('seed/rows'), 'shipped')
  })

  it('survive every update, and deploying the same version again changes nothing', { skip: ONLY_IN_CI }, async () => {
    await update({ 'data/db/rows': 'shipped' })
    writeFiles(place, { 'data/db/rows': 'written later' })
    const again = await stage.deploy()
    assert.deepEqual([again.exitCode, again.outputs['changed']], [0, 'false'])
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    assert.equal((await stage.deploy()).exitCode, 0)
    assert.equal(textOf('data/db/rows'), 'written later')
  })

  it('get the parents that the new version lacks, with mode 0755 whatever the umask', {
    skip: ONLY_IN_CI,
  }, async () => {
    const usual = process.umask(0o077)
    try {
      await update({}, { 'keep-paths': 'etc/local.conf' })
    } finally {
      process.umask(usual)
    }
    assert.equal(statSync(join(place, 'etc')).mode & 0o777, 0o755)
  })

  it('stay symlinks if they are symlinks, and are never followed', async () => {
    symlinkSync('/', join(place, 'link'))
    await update({}, { 'keep-paths': 'link' })
    assert.ok(existsSync(join(place, 'link/tmp')))
  })

  it('are refused if they lead through a symlink', async () => {
    symlinkSync('data', join(place, 'link'))
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
    const refusal = { code: 'step_failed', during: 'installing', step: 'files' } as const
    await assertRefuses(stage, refusal, { 'keep-paths': 'link/db' })
  })

  it('may contain one another or be named twice', { skip: ONLY_IN_CI }, async () => {
    await update({}, { 'keep-paths': 'data/db, data\ndata/' })
    assert.equal(textOf('data/db/rows'), 'mine')
  })
})

describe('paths that keep-paths no longer names', () => {
  const SHORTER = { 'keep-paths': '.env' }

  it('stay through updates and a rollback, with one warning that says how to end this', async () => {
    for (const path of ['etc', 'stray']) rmSync(join(place, path), { recursive: true })
    const updated = await update({}, SHORTER)
    const rolledBack = await rollBack(stage, { ...SHORTER, 'to-version': '1.0.0' })
    for (const { log, outputs } of [updated, rolledBack]) {
      assert.equal(outputs['outcome'], 'success', log)
      const warnings = commandsIn(log, 'warning').filter(warning => warning.includes('keep-paths'))
      assert.equal(warnings.length, 1)
      assert.match(warnings.join(), /plugins\/greeter\/data, but .* stays on the host\. .* remove it by hand/)
    }
    assert.equal(textOf('data/db/rows'), 'mine')
    assert.deepEqual(installedRow(stage).keep_paths, ['.env', 'data'])
    const checked = await runStatus()
    assert.deepEqual([checked.outputs['drift'], checked.exitCode], ['false', 0], checked.log)
  })

  it('stay no longer once they are removed by hand', async () => {
    rmSync(join(place, 'data'), { recursive: true })
    const { log } = await update({}, SHORTER)
    assert.doesNotMatch(commandsIn(log, 'warning').join(), /keep-paths/)
    assert.deepEqual(installedRow(stage).keep_paths, ['.env'])
  })

  it('are not replaced by files of the next version: the run is refused before the switch', async () => {
    await stage.publish('2.0.0', pluginFiles('2.0.0', { 'data/db/schema': 'shipped' }))
    for (const inputs of [SHORTER, { ...SHORTER, 'dry-run': 'true' }]) {
      const { outputs, log } = await stage.deploy(inputs)
      assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'invalid_input'], log)
      assert.match(
        log,
        /kept \S+\/plugins\/greeter\/data, and 2\.0\.0 has a file of its own there \(data\/db\/schema\)/,
      )
    }
    assert.deepEqual([textOf('data/db/rows'), textOf('data/db/schema')], ['mine', undefined])
    const named = await stage.deploy({ 'keep-paths': '.env, data' })
    assert.deepEqual([named.outputs['outcome'], textOf('data/db/rows')], ['success', 'mine'], named.log)
  })

  it('stay, or the run is refused, if one of them cannot be examined', async () => {
    await update({}, { 'keep-paths': '.env, data, state/db' })
    symlinkSync('state', join(place, 'state'))
    await stage.publish('3.0.0', pluginFiles('3.0.0'))
    const { outputs, log } = await stage.deploy(SHORTER)
    assert.deepEqual([outputs['outcome'], outputs['running-version']], ['failed', '2.0.0'], log)
    assert.match(log, /plugins\/greeter\/state\/db/)
    assert.equal(textOf('data/db/rows'), 'mine')
  })

  for (const [path, outcome] of Object.entries({
    src: 'success',
    'src/main.py': 'success',
    'src/__pycache__': 'success',
    'src/json.py': 'invalid_input',
    'plugin.yaml': 'invalid_input',
    lib: 'invalid_input',
    '*': 'success',
  }))
    it(`cannot make code stay (${path} in installed.json)`, async () => {
      const installed = join(stage.root, '.hub-deploy/installed.json')
      const known = JSON.parse(readFileSync(installed, 'utf8'))
      known.installed[0].keep_paths = [path]
      writeFileSync(installed, JSON.stringify(known))
      const names = ['src/main.py', 'src/json.py', 'src/__pycache__/main.pyc', 'lib/code.py']
      writeFiles(place, Object.fromEntries(names.map(name => [name, 'planted'])))
      await stage.publish('2.0.0', pluginFiles('2.0.0', { 'lib/code.py': 'shipped' }))
      const { outputs, log } = await stage.deploy()
      assert.equal(outputs['error-code'] || outputs['outcome'], outcome, log)
      if (outcome !== 'success') return
      const stayed = ['src/json.py', 'src/__pycache__/main.pyc', 'lib/code.py'].map(textOf)
      assert.deepEqual(stayed, [undefined, undefined, 'shipped'])
      assert.match(textOf('src/main.py') ?? '', /2\.0\.0/)
    })
})

function runStatus() {
  return runAction({ action: 'status', workspace: stage.workspace, inputs: { 'project-root': stage.root } })
}
