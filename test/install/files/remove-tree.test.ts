import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { errnoOf } from '../../../src/core/errors.ts'
import { emptyDirectory, removeTree } from '../../../src/install/files/remove-tree.ts'
import { mountMemory, mountOver, whyNoMounting } from '../../e2e/harness/mounts.ts'
import { byExtent, whyRightsAreLeftToCi } from '../../extent.ts'
import { temporaryDirectory } from '../../folders.ts'
import { makeSwappable, startSwapper, whyNoSwapper } from './folder-swapper.ts'

const REMOVALS = byExtent({ sample: 60, ci: 1000 })

describe('removeTree', () => {
  it('removes files, symlinks and directories, and nothing behind a symlink', async t => {
    const folder = temporaryDirectory(t)
    const outside = makeCanary(folder, 'outside')
    const tree = join(folder, 'tree')
    mkdirSync(join(tree, 'a/b'), { recursive: true })
    writeFileSync(join(tree, 'a/b/file'), '')
    symlinkSync(outside, join(tree, 'a/link'))
    await removeTree(tree)
    assert.deepEqual(readdirSync(folder), ['outside'])
    assert.equal(readdirSync(outside).length, 5)
  })

  it('removes a file, a symlink and a missing path', async t => {
    const folder = temporaryDirectory(t)
    writeFileSync(join(folder, 'file'), '')
    symlinkSync('file', join(folder, 'link'))
    for (const name of ['link', 'file', 'missing', 'missing/inner']) await removeTree(join(folder, name))
    assert.deepEqual(readdirSync(folder), [])
  })

  it('removes names that are not UTF-8', async t => {
    const folder = temporaryDirectory(t)
    const inner = Buffer.concat([Buffer.from(join(folder, 'tree/')), Buffer.from([0x66, 0xff, 0x67])])
    mkdirSync(join(folder, 'tree'))
    mkdirSync(inner)
    writeFileSync(Buffer.concat([inner, Buffer.from('/'), Buffer.from([0xfe])]), '')
    await removeTree(join(folder, 'tree'))
    assert.deepEqual(readdirSync(folder), [])
  })

  it('removes a tree that is deeper than the longest path', async t => {
    const folder = temporaryDirectory(t)
    const make = 'my $n = 0; while ($n++ < 300) { mkdir "d" x 20; chdir "d" x 20 or die }'
    mkdirSync(join(folder, 'tree'))
    assert.equal(spawnSync('perl', ['-e', make], { cwd: join(folder, 'tree') }).status, 0)
    await removeTree(join(folder, 'tree'))
    assert.deepEqual(readdirSync(folder), [])
  })

  it('removes our own directories that are not writable', async t => {
    const folder = temporaryDirectory(t)
    mkdirSync(join(folder, 'tree/cache'), { recursive: true })
    writeFileSync(join(folder, 'tree/cache/module'), '')
    for (const path of ['tree/cache', 'tree']) chmodSync(join(folder, path), 0o555)
    await removeTree(join(folder, 'tree'))
    assert.deepEqual(readdirSync(folder), [])
  })

  it('names a path that it cannot remove, and removes the rest', { skip: whyNoImmutable() }, async t => {
    const folder = temporaryDirectory(t)
    const stays = join(folder, 'tree/b/stays')
    for (const name of ['a', 'b', 'c']) mkdirSync(join(folder, 'tree', name), { recursive: true })
    writeFileSync(stays, '')
    spawnSync('chattr', ['+i', stays])
    const { error } = await removeTree(join(folder, 'tree')).then(
      () => ({ error: undefined }),
      error => ({ error }),
    )
    spawnSync('chattr', ['-i', stays])
    assert.deepEqual([errnoOf(error), error?.path], ['EPERM', stays])
    assert.ok(error?.message.endsWith(`unlink '${stays}'`), error?.message)
    assert.deepEqual(readdirSync(join(folder, 'tree'), { recursive: true }).sort(), ['b', 'b/stays'])
  })
})

describe('emptyDirectory', () => {
  it('removes everything in a directory, also in one with many entries, and nothing behind a symlink', async t => {
    const folder = temporaryDirectory(t)
    const [outside, top] = [makeCanary(folder, 'outside'), join(folder, 'top')]
    mkdirSync(join(top, 'a/b'), { recursive: true })
    // The directory takes more than 64 KiB.
    fill(join(top, 'a/b'), 400, 'n'.repeat(200))
    symlinkSync(outside, join(top, 'link'))
    symlinkSync(outside, join(top, 'a/link'))
    assert.equal(spawnSync('mkfifo', [join(top, 'a/pipe')]).status, 0)
    await emptyDirectory(top)
    assert.deepEqual(readdirSync(top), [])
    assert.equal(readdirSync(outside).length, 5)
  })

  it('goes on if another process removes the same entries at the same time', async t => {
    const top = temporaryDirectory(t)
    for (const name of ['a', 'b', 'c']) {
      mkdirSync(join(top, name, 'd/e'), { recursive: true })
      for (const inner of ['', 'd', 'd/e']) fill(join(top, name, inner), 400)
    }
    await Promise.all([emptyDirectory(top), emptyDirectory(top), emptyDirectory(top)])
    assert.deepEqual(readdirSync(top), [])
  })

  it('leaves everything in place if the directory is a symlink', async t => {
    const folder = temporaryDirectory(t)
    symlinkSync(makeCanary(folder, 'outside'), join(folder, 'link'))
    await assert.rejects(emptyDirectory(join(folder, 'link')), { code: /ENOTDIR|ELOOP/ })
    assert.equal(readdirSync(join(folder, 'outside')).length, 5)
  })

  it('neither enters a mount point nor is one', { skip: whyNoMounting() }, async t => {
    const top = join(mountMemory(t, 'size=1m'), 'top')
    for (const name of ['before', 'mounted', 'then']) mkdirSync(join(top, 'tree', name), { recursive: true })
    mountOver(t, join(top, 'tree/mounted'), 'size=1m')
    writeFileSync(join(top, 'tree/mounted/file'), '')
    for (const path of [top, join(top, 'tree/mounted')])
      await assert.rejects(emptyDirectory(path), { code: 'unsafe_host', message: /tree\/mounted is a mount point/ })
    assert.deepEqual(readdirSync(top, { recursive: true }).sort(), ['tree', 'tree/mounted', 'tree/mounted/file'])
  })

  it('stops soon after an abort, and leaves the rest', async t => {
    const top = temporaryDirectory(t)
    for (const name of ['a', 'b']) {
      mkdirSync(join(top, name))
      fill(join(top, name), 2000)
    }
    const controller = new AbortController()
    setImmediate(() => controller.abort(new Error('cancelled')))
    await assert.rejects(emptyDirectory(top, controller.signal), /^Error: cancelled$/)
    assert.notDeepEqual(readdirSync(top), [])
    await emptyDirectory(top)
    assert.deepEqual(readdirSync(top), [])
  })
})

describe('removeTree, while a process of another user swaps subfolders for symlinks,', { skip: whyNoSwapper() }, () => {
  it(`never removes anything behind them, in ${REMOVALS} removals`, async t => {
    const folder = temporaryDirectory(t)
    chmodSync(folder, 0o755)
    const canaries = [makeCanary(folder, 'outside'), makeCanary(folder, 'another-plugin')]
    mkdirSync(join(folder, 'staging'), { mode: 0o700 })
    const swapper = startSwapper(t, ...canaries)
    const hits: string[] = []
    for (let round = 0; round < REMOVALS; round++) {
      const [place, removed] = [join(folder, 'plugin'), join(folder, 'staging/discarded')]
      mkdirSync(place)
      makeSwappable(join(place, 'service'))
      await swapper.enter(join(place, 'service'))
      renameSync(place, removed)
      await removeTree(removed).catch(error => assert.equal(errnoOf(error), 'ENOTEMPTY', error))
      await swapper.done()
      await removeTree(removed)
      assert.ok(!existsSync(removed))
      for (const canary of canaries) {
        if (readdirSync(canary).length === 5) continue
        hits.push(`${round}: ${canary}`)
        for (let n = 0; n < 5; n++) writeFileSync(join(canary, `file-${n}`), '')
      }
    }
    assert.deepEqual(hits, [])
  })
})

function fill(folder: string, count: number, name = 'file'): void {
  for (let n = 0; n < count; n++) writeFileSync(join(folder, `${name}-${n}`), '')
}

function makeCanary(folder: string, name: string): string {
  const canary = join(folder, name)
  mkdirSync(canary)
  fill(canary, 5)
  return canary
}

function whyNoImmutable(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  return process.getuid?.() === 0 && spawnSync('chattr', ['-V']).error === undefined ? false : 'needs root and chattr'
}
