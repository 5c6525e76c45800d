import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { comparePaths } from '../../src/core/trust/tree-digest.ts'
import { TreeWriter } from '../../src/install/archive/writer.ts'
import { TimeSlice } from '../../src/install/files/time-slice.ts'
import { describeItemSync } from '../../src/install/files/walk.ts'
import { stagedItems } from '../../src/install/trees/record.ts'
import { layOverStub, type PlacedTree, readPartPluginYaml } from '../../src/project/parts.ts'
import { timesMoveOn } from '../clocks.ts'
import { mountFoldingDisk, whyNoFoldingDisk } from '../e2e/harness/folding-disk.ts'
import { writeFiles } from '../e2e/harness/stage.ts'
import { temporaryDirectory, writeTree } from '../folders.ts'
import { namesIn } from '../sources/git-stage.ts'

function placed(
  t: TestContext,
  files: Record<string, string>,
  links: Record<string, string> = {},
  parent = tmpdir(),
): PlacedTree {
  const staged = mkdtempSync(join(parent, 'overlay-'))
  t.after(() => rmSync(staged, { recursive: true, force: true }))
  writeFiles(staged, files)
  return {
    staged,
    tree: {
      files: Object.entries(files).map(([path, text]) => {
        return { path, size: text.length, mode: 0o644 as const, sha256: hash('sha256', text) }
      }),
      symlinks: Object.entries(links).map(([path, target]) => ({ path, target, file: null, reach: '' })),
      directories: namesIn(staged).filter(path => statSync(join(staged, path)).isDirectory()),
    },
  }
}

describe('a fetched tree', () => {
  it('replaces stub files of the same name, and gets no stub file below one of its files or symlinks', async t => {
    const fetched = placed(t, { 'plugin.yaml': 'fetched', 'src/a': 'fetched', file: 'fetched' }, { link: '/etc' })
    const stub = placed(
      t,
      {
        ...{ 'plugin.yaml': 'stub', '.env.template': 'stub', 'conf/deep/x.template': 'stub' },
        ...{ 'file/x.template': 'stub', 'link/x.template': 'stub' },
      },
      {},
    )
    const { staged, tree } = await layOverStub(fetched, stub, new TimeSlice())
    const all = ['.env.template', 'conf', 'conf/deep', 'conf/deep/x.template', 'file', 'plugin.yaml', 'src', 'src/a']
    assert.deepEqual(namesIn(staged), all)
    assert.equal(readFileSync(join(staged, 'plugin.yaml'), 'utf8'), 'fetched')
    assert.equal(statSync(join(staged, 'conf/deep')).mode & 0o777, 0o755)
    assert.deepEqual(
      tree.files.map(({ path }) => path),
      ['.env.template', 'conf/deep/x.template', 'file', 'plugin.yaml', 'src/a'],
    )
    assert.deepEqual(
      tree.symlinks.map(({ path }) => path),
      ['link'],
    )
  })

  it('is recorded with the stamps of its files on the disk, including those of the stub', async t => {
    const slice = new TimeSlice()
    const extracted = (path: string): PlacedTree => {
      const { staged, tree } = placed(t, {})
      mkdirSync(join(staged, 'src'))
      const file = new TreeWriter(staged, slice).writeFile({ path, mode: 0o644 }, Buffer.from(path))
      return { staged, tree: { ...tree, files: [file], directories: ['src'] } }
    }
    const [fetched, stub] = [extracted('src/a'), extracted('b.template')]
    await timesMoveOn(stub.staged)
    const found = await layOverStub(fetched, stub, slice)
    const recorded = [...stagedItems(found, [])].map(({ path, stamp }) => [path, stamp])
    const onDisk = ['b.template', 'src/a'].map(path => [path, describeItemSync(found.staged, path)?.stamp])
    assert.deepEqual(recorded, onDisk)
  })

  it('keeps its empty directories, and uses them for stub files', async t => {
    const fetched = placed(t, { a: '1' })
    mkdirSync(join(fetched.staged, 'config/empty.template'), { recursive: true })
    const stub = placed(t, { 'config/app.template': 'stub', 'config/empty.template': 'stub' })
    const tree = { ...fetched.tree, directories: ['config', 'config/empty.template'] }
    const found = await layOverStub({ ...fetched, tree }, stub, new TimeSlice())
    const all = ['a', 'config', 'config/app.template', 'config/empty.template']
    assert.deepEqual(namesIn(found.staged), all)
    assert.deepEqual(
      found.tree.files.map(({ path }) => path),
      ['a', 'config/app.template'],
    )
  })

  it('replaces a stub file whose name is the same in another Unicode normal form', async t => {
    const composed = { 'caf\u00e9.template': 'fetched', '\u00e9/a': 'fetched' }
    const fetched = placed(t, composed)
    const stub = placed(t, { 'cafe\u0301.template': 'stub', 'e\u0301/x.template': 'stub', 'e\u0301.template': 'stub' })
    const { tree } = await layOverStub(fetched, stub, new TimeSlice())
    assert.deepEqual(
      tree.files.map(({ path }) => path),
      ['cafe\u0301.template'.normalize('NFC'), 'e\u0301.template', '\u00e9/a'].toSorted(comparePaths),
    )
  })

  it('is not overwritten by a stub file of the same name on a file system that ignores case', {
    skip: whyNoFoldingDisk(),
  }, async t => {
    const { mounted } = mountFoldingDisk(t)
    const fetched = placed(t, { 'Plugin.yaml': 'fetched', 'Conf/a': 'fetched' }, {}, mounted)
    const stub = placed(t, { 'plugin.yaml': 'stub', 'conf/b.template': 'stub', c: '' }, {}, mounted)
    const { staged, tree } = await layOverStub(fetched, stub, new TimeSlice())
    assert.equal(readFileSync(join(staged, 'Plugin.yaml'), 'utf8'), 'fetched')
    assert.deepEqual(
      tree.files.map(({ path }) => path),
      ['Conf/a', 'Plugin.yaml'],
    )
  })

  it('gets only descriptions and templates from the archive', async t => {
    const stub = placed(t, {
      ...{ 'plugin.yaml': '', 'service.yaml': '', 'extension.yaml': '', 'a/b.template': '' },
      ...{ 'src/__init__.py': 'evil', 'a/plugin.yaml': '', 'b.template.py': '' },
    })
    const { staged, tree } = await layOverStub(placed(t, { 'src/main.py': '1' }), stub, new TimeSlice())
    assert.deepEqual(
      tree.files.map(({ path }) => path),
      ['a/b.template', 'extension.yaml', 'plugin.yaml', 'service.yaml', 'src/main.py'],
    )
    assert.equal(namesIn(staged).includes('src/__init__.py'), false)
  })

  it('takes no symlink from the stub', async t => {
    const { tree } = await layOverStub(placed(t, { a: '1' }), placed(t, {}, { link: 'a' }), new TimeSlice())
    assert.deepEqual(tree.symlinks, [])
  })
})

describe('readPartPluginYaml', () => {
  it('names the part whose file it refuses', t => {
    const staged = temporaryDirectory(t)
    writeTree(staged, { 'plugin.yaml': 'environment: [1]\n' })
    assert.throws(() => readPartPluginYaml({ shelf: 'plugins', id: 'cart' }, staged), {
      code: 'not_a_plugin',
      message:
        /^plugins\/cart: The artifact's plugin\.yaml has an unexpected environment .* marketplace_kind: service\)\.$/,
    })
  })
})
