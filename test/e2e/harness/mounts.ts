import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { whyRightsAreLeftToCi } from '../../extent.ts'

/**
 * The reason why a file system of this type cannot be mounted here, for a test's `skip`; false if it can. See also
 * `whyNoExt4`.
 */
export function whyNoMounting(type: 'tmpfs' | 'overlay' = 'tmpfs'): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  const folder = mkdtempSync(join(tmpdir(), 'mount-'))
  try {
    run('mount', '-t', 'tmpfs', 'tmpfs', folder)
    if (type === 'overlay') tryOverlay(folder)
    return false
  } catch (error) {
    return `needs root and the permission to mount ${type} (${error instanceof Error ? error.message.trim() : error})`
  } finally {
    spawnSync('umount', ['-l', folder])
    rmSync(folder, { recursive: true })
  }
}

function tryOverlay(folder: string): void {
  for (const name of ['lower', 'upper', 'work', 'merged']) mkdirSync(join(folder, name))
  const layers = `lowerdir=${folder}/lower,upperdir=${folder}/upper,workdir=${folder}/work`
  run('mount', '-t', 'overlay', '-o', layers, 'overlay', join(folder, 'merged'))
  run('umount', join(folder, 'merged'))
}

/** The reason why no file can be made immutable here; false if one can. */
export function whyNoImmutables(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  const folder = mkdtempSync(join(tmpdir(), 'immutable-'))
  const path = join(folder, 'file')
  writeFileSync(path, '')
  const made = spawnSync('chattr', ['+i', path]).status === 0
  if (made) spawnSync('chattr', ['-i', path])
  rmSync(folder, { recursive: true })
  return made ? false : 'needs root, chattr and a file system that supports immutable files'
}

/** Mounts a file system in memory that is gone when the test ends. */
export function mountMemory(t: TestContext, options: string, type: 'tmpfs' | 'ramfs' = 'tmpfs'): string {
  const folder = mkdtempSync(join(tmpdir(), 'mounted-'))
  run('mount', '-t', type, '-o', `mode=755,${options}`, type, folder)
  t.after(() => {
    run('umount', '-l', folder)
    rmSync(folder, { recursive: true, force: true })
  })
  return folder
}

/**
 * Mounts a tmpfs over a path in a host until the test ends. The tmpfs hides the content of the path. It may end
 * earlier, with a mount that contains it.
 */
export function mountOver(t: TestContext, path: string, options: string): void {
  mkdirSync(path, { recursive: true })
  run('mount', '-t', 'tmpfs', '-o', `mode=755,${options}`, 'tmpfs', path)
  t.after(() => spawnSync('umount', ['-l', path]))
}

export function run(program: string, ...args: string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${program} ${args.join(' ')}: ${error?.message ?? stderr}`)
}

/**
 * Mounts a directory a second time, at another path, until the test ends. The second mount may end earlier, with a
 * mount that contains it.
 */
export function bindMount(t: TestContext, source: string, path: string): void {
  for (const folder of [source, path]) mkdirSync(folder, { recursive: true })
  run('mount', '--bind', source, path)
  t.after(() => spawnSync('umount', ['-l', path]))
}

/** Mounts an ext4 file system from an image file at a path in a host. */
export function mountLoop(t: TestContext, path: string): void {
  const folder = mkdtempSync(join(tmpdir(), 'loop-'))
  const image = join(folder, 'image')
  run('truncate', '-s', '8M', image)
  run('mkfs.ext4', '-q', image)
  mkdirSync(path, { recursive: true })
  run('mount', '-o', 'loop', image, path)
  t.after(() => {
    run('umount', path)
    rmSync(folder, { recursive: true })
  })
}

/** Puts the content of a directory into the lower layer of an overlay, as in a container's image. */
export function overlayOver(t: TestContext, path: string): void {
  const folder = mountMemory(t, 'size=64m')
  for (const name of ['upper', 'work']) mkdirSync(join(folder, name))
  const layers = `lowerdir=${path},upperdir=${join(folder, 'upper')},workdir=${join(folder, 'work')}`
  run('mount', '-t', 'overlay', '-o', `${layers},redirect_dir=off`, 'overlay', path)
  t.after(() => spawnSync('umount', ['-l', path]))
}

/** The reason why no ext4 file system can be made and mounted here; false if one can. */
export function whyNoExt4(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  if (spawnSync('mkfs.ext4', ['-V']).status !== 0) return 'needs mkfs.ext4'
  const folder = mkdtempSync(join(tmpdir(), 'ext4-'))
  try {
    mountImage(folder, { blockBytes: 1024, megabytes: 4 })
    run('umount', join(folder, 'mounted'))
    return false
  } catch (error) {
    return `needs root and the permission to mount a loop device (${error instanceof Error ? error.message : error})`
  } finally {
    rmSync(folder, { recursive: true })
  }
}

export interface Ext4 {
  blockBytes: 1024 | 4096
  megabytes: number
  /** Default: as many as mkfs.ext4 chooses. */
  inodes?: number
}

/** Mounts an ext4 file system with a journal. Its image is a file that is gone when the test ends. */
export function mountExt4(t: TestContext, ext4: Ext4): string {
  const folder = mkdtempSync(join(tmpdir(), 'ext4-'))
  const mounted = mountImage(folder, ext4)
  t.after(() => {
    run('umount', '-l', mounted)
    rmSync(folder, { recursive: true, force: true })
  })
  return mounted
}

function mountImage(folder: string, { blockBytes, megabytes, inodes }: Ext4): string {
  const [image, mounted] = [join(folder, 'image'), join(folder, 'mounted')]
  writeFileSync(image, '')
  truncateSync(image, megabytes * 1024 * 1024)
  mkdirSync(mounted)
  const few = inodes === undefined ? [] : ['-N', String(inodes)]
  run('mkfs.ext4', '-q', '-F', '-m', '0', '-b', String(blockBytes), ...few, image)
  run('mount', '-o', 'loop', image, mounted)
  return mounted
}
