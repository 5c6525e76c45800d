import assert from 'node:assert/strict'
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { scanTree } from '../../../src/install/files/walk.ts'
import { whyLeftToCi } from '../../extent.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'

const ALL = { isLeftOut: () => false }

describe('a scanned tree', () => {
  it('has its items in the order of a tree digest, whatever their names', t => {
    const root = temporaryDirectory(t)
    const paths = ['a/b', 'a.txt', 'a0', 'b/c/d', 'b/c-', 'b.c', '\uff21', '\u{1f600}/x', '\u{1f600}x']
    writeTree(root, Object.fromEntries(paths.toReversed().map(path => [path, ''])))
    assert.deepEqual(pathsOf(root), paths)
  })

  it('includes files that were added to a directory after it was listed, but before it was entered', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { 'a/b/c': '', 'd/e': '' })
    const scan = scanTree(root, ALL)
    for (let next = scan.next(); next.value === undefined; next = scan.next()) assert.ok(!next.done)
    writeFileSync(join(root, 'd/later'), '')
    assert.deepEqual(
      [...scan].flatMap(item => item?.path ?? []),
      ['d/e', 'd/later'],
    )
  })

  it('does not follow a symlink that has replaced a listed directory', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { 'a/b': '', 'd/e': '', 'f/g': '' })
    const scan = scanTree(root, ALL)
    for (let next = scan.next(); next.value === undefined; next = scan.next()) assert.ok(!next.done)
    renameSync(join(root, 'd'), join(root, 'was-d'))
    symlinkSync('was-d', join(root, 'd'))
    assert.deepEqual(
      [...scan].flatMap(item => (item === undefined ? [] : [[item.path, item.kind]])),
      [
        ['d', 'link'],
        ['f/g', '644'],
      ],
    )
  })

  it('has no more names in memory before its first item than the limit, however many directories there are', {
    skip: whyLeftToCi(),
  }, t => {
    const root = temporaryDirectory(t)
    const [folders, files, limit] = [60, 1000, 30_000]
    for (let folder = 0; folder < folders; folder++) {
      mkdirSync(join(root, `${folder}`))
      for (let file = 0; file < files; file++) writeFileSync(join(root, `${folder}`, `${file}`), '')
    }
    // The scan pauses, with an undefined item, after each directory that it has listed.
    let listed = 0
    for (const item of scanTree(root, ALL)) {
      if (item !== undefined) break
      listed += 1
    }
    assert.ok(listed > 1 && listed <= limit / files + 1, `${listed} directories were listed before the first item`)
  })

  it('is scanned to its end if it has more names than are in memory at once', { skip: whyLeftToCi() }, t => {
    const root = temporaryDirectory(t)
    const folders = ['a', 'b', 'c/d/e', 'c/f']
    for (const folder of folders) {
      mkdirSync(join(root, folder), { recursive: true })
      for (let index = 0; index < 8000; index++) writeFileSync(join(root, folder, `${index}`.padStart(5, '0')), '')
    }
    const paths = pathsOf(root)
    assert.deepEqual([paths.length, paths[8000], paths.at(-1)], [32_000, 'b/00000', 'c/f/07999'])
  })

  it('has every directory reported once, except for those left out, and is never listed through a symlink', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { 'a/b/c': '', 'data/d': '', 'e/f': '' })
    symlinkSync('a', join(root, 'link'))
    const heard: string[] = []
    const rules = { isLeftOut: (path: string) => path === 'data', onDirectory: (path: string) => heard.push(path) }
    assert.deepEqual(
      [...scanTree(root, rules)].flatMap(item => item?.path ?? []),
      ['a/b/c', 'e/f', 'link'],
    )
    assert.deepEqual(heard, ['', 'a', 'a/b', 'e'])
  })
})

function pathsOf(root: string): string[] {
  return [...scanTree(root, ALL)].flatMap(item => item?.path ?? [])
}
