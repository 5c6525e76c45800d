import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { type SettingsSeed, writeEnv } from '../../../src/install/steps/write-env.ts'
import { openJournal } from '../../../src/install/transaction/journal.ts'
import { beginTransaction, type Transaction } from '../../../src/install/transaction/transaction.ts'
import { collectLog } from '../collected-log.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

interface Scene {
  root: string
  target: string
  template: string
  transaction: Transaction
  write(more?: Partial<SettingsSeed>): Promise<'done' | 'unchanged'>
}

async function makeScene(t: TestContext, template = 'A=1\n'): Promise<Scene> {
  const layout = await prepareTemporaryHost(t)
  const journal = await openJournal(layout.journal)
  t.after(() => journal.close())
  const stagingFolder = join(layout.staging, 'one')
  mkdirSync(stagingFolder)
  writeTree(layout.root, { 'plugins/x/.env.template': template })
  const transaction = beginTransaction(layout.root, journal, collectLog())
  const seed: SettingsSeed = {
    layout,
    transaction,
    log: collectLog(),
    shelf: 'plugins',
    id: 'x',
    from: 'plugins/x/.env.template',
    environment: { required: [], optional: [] },
    variables: {},
    stagingFolder,
  }
  return {
    root: layout.root,
    target: join(layout.root, 'plugins/x.env'),
    template: join(layout.root, 'plugins/x/.env.template'),
    transaction,
    write: more => writeEnv({ ...seed, ...more }),
  }
}

function stepFailed(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'step_failed'
}

describe('writeEnv', () => {
  for (const umask of [0o000, 0o077]) {
    it(`writes the settings 0600 under umask ${umask.toString(8)}, and takes them back`, async t => {
      const scene = await makeScene(t, 'TOKEN=\n')
      const before = process.umask(umask)
      t.after(() => process.umask(before))
      assert.equal(await scene.write({ variables: { TOKEN: 's3cret' } }), 'done')
      assert.equal(readFileSync(scene.target, 'utf8'), 'TOKEN=s3cret\n')
      assert.equal(statSync(scene.target).mode & 0o777, 0o600)
      await scene.transaction.rollback()
      assert.ok(!existsSync(scene.target))
    })
  }

  it('never changes an existing file, nor removes it on the way back', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.target, 'A=mine', { mode: 0o640 })
    assert.equal(
      await scene.write({ environment: { required: ['A'], optional: ['B'] }, variables: { A: 'x', B: 'y' } }),
      'unchanged',
    )
    await scene.transaction.rollback()
    assert.equal(readFileSync(scene.target, 'utf8'), 'A=mine')
    assert.equal(statSync(scene.target).mode & 0o777, 0o640)
  })

  it('fails on an existing file without a required key, and leaves it as it is', async t => {
    const scene = await makeScene(t)
    writeFileSync(scene.target, 'A=\n')
    await assert.rejects(
      scene.write({ environment: { required: ['A'], optional: [] }, variables: { A: 'x' } }),
      stepFailed,
    )
    assert.equal(readFileSync(scene.target, 'utf8'), 'A=\n')
  })

  it('reads existing settings through a symlink of the host, and leaves both', async t => {
    const scene = await makeScene(t)
    const theirs = join(scene.root, 'theirs')
    writeFileSync(theirs, 'A=mine\n')
    symlinkSync(theirs, scene.target)
    assert.equal(await scene.write({ environment: { required: ['A'], optional: [] } }), 'unchanged')
    assert.deepEqual([readFileSync(theirs, 'utf8'), readlinkSync(scene.target)], ['A=mine\n', theirs])
  })

  const inTheWay: Record<string, (scene: Scene) => void> = {
    'a symlink to nothing': ({ root, target }) => symlinkSync(join(root, 'elsewhere'), target),
    'a pipe that nobody writes to': ({ target }) => execFileSync('mkfifo', [target]),
    'a symlink to such a pipe': ({ root, target }) => {
      execFileSync('mkfifo', [join(root, 'pipe')])
      symlinkSync(join(root, 'pipe'), target)
    },
    'a directory': ({ target }) => mkdirSync(target),
  }
  for (const [name, place] of Object.entries(inTheWay)) {
    it(`fails on ${name} in the place of the settings, and writes nothing`, async t => {
      const scene = await makeScene(t)
      place(scene)
      await assert.rejects(scene.write(), stepFailed)
      assert.ok(!existsSync(join(scene.root, 'elsewhere')))
      assert.equal(scene.transaction.changed, false)
    })
  }

  const unusable: Record<string, (scene: Scene) => Partial<SettingsSeed>> = {
    'a template that is not there': () => ({ from: 'plugins/x/none' }),
    'a template that is a directory': () => ({ from: 'plugins/x' }),
    'a template that is a symlink': ({ root }) => {
      symlinkSync('/etc/hostname', join(root, 'plugins/x/link'))
      return { from: 'plugins/x/link' }
    },
    'a template that is a pipe': ({ root }) => {
      execFileSync('mkfifo', [join(root, 'plugins/x/pipe')])
      return { from: 'plugins/x/pipe' }
    },
    'a template larger than 256 KiB': ({ template }) => {
      truncateSync(template, 256 * 1024 + 1)
      return {}
    },
    'a required key without a value': () => ({ environment: { required: ['GONE'], optional: [] } }),
    'a value with a line break': () => ({ variables: { A: 'x\nB=y' } }),
  }
  for (const [name, prepare] of Object.entries(unusable)) {
    it(`fails on ${name} and writes nothing`, async t => {
      const scene = await makeScene(t)
      await assert.rejects(scene.write(prepare(scene)), stepFailed)
      assert.ok(!existsSync(scene.target))
      assert.equal(scene.transaction.changed, false)
    })
  }
})
