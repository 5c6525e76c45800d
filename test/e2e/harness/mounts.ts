import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

/** Why no file system can be mounted here, or false: what a test's `skip` takes. */
export function whyNoMounting(): string | false {
  const folder = mkdtempSync(join(tmpdir(), 'mount-'))
  const mounted = spawnSync('mount', ['-t', 'tmpfs', 'tmpfs', folder]).status === 0
  if (mounted) spawnSync('umount', [folder])
  rmSync(folder, { recursive: true })
  return mounted ? false : 'needs root, and leave to mount'
}

/** Why no file can be made immutable here, or false. */
export function whyNoImmutables(): string | false {
  const folder = mkdtempSync(join(tmpdir(), 'immutable-'))
  const path = join(folder, 'file')
  writeFileSync(path, '')
  const made = spawnSync('chattr', ['+i', path]).status === 0
  if (made) spawnSync('chattr', ['-i', path])
  rmSync(folder, { recursive: true })
  return made ? false : 'needs root, chattr and a file system that has immutable files'
}

/** A file system in memory, gone when the test ends. */
export function mountMemory(t: TestContext, options: string, type: 'tmpfs' | 'ramfs' = 'tmpfs'): string {
  const folder = mkdtempSync(join(tmpdir(), 'mounted-'))
  run('mount', '-t', type, '-o', `mode=755,${options}`, type, folder)
  t.after(() => {
    run('umount', '-l', folder)
    rmSync(folder, { recursive: true, force: true })
  })
  return folder
}

/** The same at a place in a host, over what is there. */
export function mountOver(t: TestContext, path: string, options: string): void {
  mkdirSync(path, { recursive: true })
  run('mount', '-t', 'tmpfs', '-o', `mode=755,${options}`, 'tmpfs', path)
  t.after(() => run('umount', '-l', path))
}

export function run(program: string, ...args: string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${program} ${args.join(' ')}: ${error?.message ?? stderr}`)
}

/** A directory mounted a second time, at another place of the same file system; it may be gone with an outer mount. */
export function bindMount(t: TestContext, source: string, path: string): void {
  for (const folder of [source, path]) mkdirSync(folder, { recursive: true })
  run('mount', '--bind', source, path)
  t.after(() => spawnSync('umount', ['-l', path]))
}

/** An ext4 file system in a file, at a place in a host. */
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

/** Puts what a directory contains into the lower layer of an overlay, as a container's image does. */
export function overlayOver(t: TestContext, path: string): void {
  const folder = mountMemory(t, 'size=64m')
  for (const name of ['upper', 'work']) mkdirSync(join(folder, name))
  const layers = `lowerdir=${path},upperdir=${join(folder, 'upper')},workdir=${join(folder, 'work')}`
  run('mount', '-t', 'overlay', '-o', `${layers},redirect_dir=off`, 'overlay', path)
  t.after(() => spawnSync('umount', ['-l', path]))
}
