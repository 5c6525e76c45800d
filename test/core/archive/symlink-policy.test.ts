import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { verifySymlink } from '../../../src/core/archive/symlink-policy.ts'

const TREE = new Map<string, 'file' | 'directory' | 'symlink'>([
  ['file', 'file'],
  ['dir', 'directory'],
  ['dir/file', 'file'],
  ['dir/sub', 'directory'],
  ['link', 'symlink'],
  ['dirlink', 'symlink'],
])

const check = (path: string, target: string) => () => verifySymlink({ path, target }, at => TREE.get(at))

describe('verifySymlink', () => {
  const ACCEPTED = [
    ['l', 'file'],
    ['l', './file'],
    ['l', 'dir'],
    ['l', 'dir/'],
    ['l', 'dir//file'],
    ['l', 'dir/../file'],
    ['l', '.'],
    ['dir/l', '../file'],
    ['dir/l', '..'],
    ['dir/sub/l', '../../dir/file'],
  ] as const
  for (const [path, target] of ACCEPTED) {
    it(`accepts ${path} -> ${target}`, () => assert.doesNotThrow(check(path, target)))
  }

  const REFUSED = [
    ['an empty target', 'l', ''],
    ['an absolute path', 'l', '/file'],
    ['a drive letter', 'l', 'c:file'],
    ['a backslash', 'l', 'dir\\file'],
    ['a control character', 'l', 'file\n'],
    ['the parent of the root', 'l', '..'],
    ['leaving and coming back', 'l', '../x/file'],
    ['leaving in the middle', 'dir/l', '../../dir/file'],
    ['a dangling target', 'l', 'nothing'],
    ['a detour through nothing', 'l', 'nothing/../file'],
    ['a detour through a file', 'l', 'file/../file'],
    ['a file as a directory', 'l', 'file/'],
    ['a symlink as target', 'l', 'link'],
    ['a symlink on the way', 'l', 'dirlink/file'],
    ['a detour through a symlink', 'l', 'dirlink/../file'],
    ['more than 64 components', 'l', `${'./'.repeat(64)}file`],
    ['more than 4,096 bytes', 'l', `dir/../${'x'.repeat(4096)}`],
  ] as const
  for (const [what, path, target] of REFUSED) {
    it(`refuses ${what}`, () => assert.throws(check(path, target), { name: 'ArchiveError', code: 'unsafe_archive' }))
  }
})
