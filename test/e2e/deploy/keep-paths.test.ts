import assert from 'node:assert/strict'
import { chmodSync, existsSync, readFileSync, statSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { whyLeftToCi } from '../../extent.ts'
import { commandsIn } from '../harness/evidence.ts'
import { assertRefuses } from '../harness/refusal.ts'
import { openInstalled, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'

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

  it('may be nested next to files of the artifact', { skip: ONLY_IN_CI }, async () => {
    await update({ 'etc/default.conf': 'shipped' }, { 'keep-paths': 'etc/local.conf\nstray\n\nnot-there/at-all\n' })
    assert.deepEqual(['etc/local.conf', 'etc/default.conf', 'stray', '.env', 'not-there'].map(textOf), [
      'mine',
      'shipped',
      'mine',
      undefined,
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
