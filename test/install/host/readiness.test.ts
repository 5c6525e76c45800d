import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { type Layout, layoutOf, renameProbePath } from '../../../src/install/host/layout.ts'
import { checkHost, prepareHost } from '../../../src/install/host/readiness.ts'
import type { SwitchingHost } from '../../../src/install/host/switchable.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'
import { collectLog, prepareTemporaryHost } from '../prepared-host.ts'

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeploymentError && error.code === code
}

function modeOf(path: string): number {
  return statSync(path).mode & 0o777
}

describe('prepareHost', () => {
  it('makes its own folders 0700 whatever the umask, any number of times', async t => {
    const layout = layoutOf(temporaryDirectory(t))
    const before = process.umask(0)
    t.after(() => process.umask(before))
    for (let time = 0; time < 2; time++) await prepareHost({ layout, sharedRoot: { isAllowed: false } }, collectLog())
    const { own, staging, snapshots, trees, reports, outbox } = layout
    for (const folder of [own, staging, snapshots, trees, reports, outbox]) assert.equal(modeOf(folder), 0o700, folder)
  })

  it('creates a missing root, and says so', async t => {
    const layout = layoutOf(join(temporaryDirectory(t), 'app'))
    const log = collectLog()
    await prepareHost({ layout, sharedRoot: { isAllowed: false } }, log)
    assert.equal(modeOf(layout.root), 0o755)
    assert.equal(log.lines.filter(line => line.startsWith('notice')).length, 1)
  })

  it('warns once of a root that is directly inside another root with deployments', async t => {
    const outer = temporaryDirectory(t)
    const layout = layoutOf(join(outer, 'plugins'))
    const warnings = async (of: Layout) => {
      const log = collectLog()
      await prepareHost({ layout: of, sharedRoot: { isAllowed: false } }, log)
      return log.lines.filter(line => line.startsWith('warning'))
    }
    assert.deepEqual(await warnings(layoutOf(outer)), [])
    const [warning, ...others] = await warnings(layout)
    assert.ok(warning?.includes(`${layout.root} has no deployments yet, but it is inside the project root ${outer}`))
    assert.deepEqual([others, await warnings(layout)], [[], []])
  })

  it('does not make its own folder private if others could already have used it', async t => {
    const layout = layoutOf(temporaryDirectory(t))
    mkdirSync(layout.own)
    chmodSync(layout.own, 0o777)
    await assert.rejects(
      prepareHost({ layout, sharedRoot: { isAllowed: false } }, collectLog()),
      refusedWith('unsafe_host'),
    )
    assert.equal(modeOf(layout.own), 0o777)
  })

  it('refuses a root that is a dangling symlink, and does not say that the root was created', async t => {
    const layout = layoutOf(join(temporaryDirectory(t), 'app'))
    symlinkSync('gone', layout.root)
    const log = collectLog()
    await assert.rejects(prepareHost({ layout, sharedRoot: { isAllowed: false } }, log), {
      code: 'host_not_writable',
      message: new RegExp(`^project-root ${layout.root} is a symlink to a directory that does not exist`),
    })
    assert.deepEqual(log.lines, [])
  })

  it('says that a root is missing, and prints the command that makes it', async t => {
    const folder = temporaryDirectory(t)
    const [above, parent] = [join(folder, 'no/the app'), join(folder, 'srv')]
    mkdirSync(parent, { mode: 0o555 })
    const ours = `install -d -o ${process.getuid?.()} -g ${process.getgid?.()} -m 755`
    await assert.rejects(prepareHost({ layout: layoutOf(above), sharedRoot: { isAllowed: false } }, collectLog()), {
      code: 'host_not_writable',
      message: `project-root ${above} does not exist, and neither does its parent directory. If the path is right, run this as root: ${ours} '${above}'`,
    })
    if (process.getuid?.() === 0) return
    const message = /app does not exist, and this runner's user may not create it\. .* -m 755 \/.*srv\/app$/
    const denied = prepareHost(
      { layout: layoutOf(join(parent, 'app')), sharedRoot: { isAllowed: false } },
      collectLog(),
    )
    await assert.rejects(denied, { code: 'host_not_writable', message })
  })

  const unusable: Record<string, (folder: string) => string> = {
    'a root whose parent is missing': folder => join(folder, 'no', 'app'),
    'a root that is a file': folder => {
      writeFileSync(join(folder, 'app'), '')
      return join(folder, 'app')
    },
    'an own folder that is a file': folder => {
      writeFileSync(join(folder, '.hub-deploy'), '')
      return folder
    },
    'an own folder that is a symlink': folder => {
      mkdirSync(join(folder, 'elsewhere'))
      symlinkSync('elsewhere', join(folder, '.hub-deploy'))
      return folder
    },
    'an own folder that is a dangling symlink': folder => {
      symlinkSync('gone', join(folder, '.hub-deploy'))
      return folder
    },
  }
  for (const [name, prepare] of Object.entries(unusable)) {
    it(`refuses ${name}`, async t => {
      const folder = temporaryDirectory(t)
      await assert.rejects(
        prepareHost({ layout: layoutOf(prepare(folder)), sharedRoot: { isAllowed: false } }, collectLog()),
        DeploymentError,
      )
      assert.ok(!existsSync(join(folder, 'elsewhere', 'staging')))
    })
  }
})

const PLANTED: Record<string, (path: string) => void> = {
  'a pipe': path => void execFileSync('mkfifo', [path]),
  'a symlink': path => symlinkSync('/nowhere/to/be/made', path),
}

describe('checkHost', () => {
  it('accepts a host with and without the shelf', async t => {
    const layout = await prepareTemporaryHost(t)
    checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' })
    mkdirSync(join(layout.root, 'plugins'))
    checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' })
  })

  it('moves nothing, even if the target of its renames has been emptied', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTree(layout.root, { 'plugins/greeter/main': '', 'plugins/greeter/data/rows': '' })
    for (const time of ['first', 'second']) {
      checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' })
      assert.ok(existsSync(join(layout.root, 'plugins/greeter/data/rows')), time)
      assert.deepEqual(readdirSync(renameProbePath(layout)), ['full'], time)
      rmdirSync(join(renameProbePath(layout), 'full'))
    }
  })

  for (const [what, plant] of Object.entries(PLANTED))
    it(`neither opens nor follows anything that a service has put into the target of its renames: ${what}`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeTree(layout.root, { 'plugins/greeter/main': '' })
      mkdirSync(renameProbePath(layout))
      plant(join(renameProbePath(layout), 'full'))
      checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' })
      assert.ok(existsSync(join(layout.root, 'plugins/greeter/main')))
    })

  it('refuses a shelf that is a file', async t => {
    const layout = await prepareTemporaryHost(t)
    writeFileSync(join(layout.root, 'plugins'), '')
    assert.throws(
      () => checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' }),
      refusedWith('host_not_writable'),
    )
  })

  it('refuses a shelf that is a dangling symlink, and does not advise moving it away', async t => {
    const layout = await prepareTemporaryHost(t)
    symlinkSync('gone', join(layout.root, 'plugins'))
    assert.throws(() => checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' }), {
      code: 'host_not_writable',
      message: /plugins is a symlink to a directory that does not exist\. Correct the symlink/,
    })
  })

  it('refuses a shelf on another file system', async t => {
    const layout = await prepareTemporaryHost(t)
    if (!existsSync('/dev/shm') || statSync('/dev/shm').dev === statSync(layout.root).dev) {
      t.skip('this machine has no second file system')
      return
    }
    symlinkSync('/dev/shm', join(layout.root, 'plugins'))
    assert.throws(
      () => checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' }),
      refusedWith('host_not_writable'),
    )
  })
})

describe('another type of file in place of a file or directory of this action', () => {
  const kinds: Record<string, 'a directory' | 'a file'> = {
    staging: 'a directory',
    'rename-probe': 'a directory',
    snapshots: 'a directory',
    trees: 'a directory',
    reports: 'a directory',
    outbox: 'a directory',
    'snapshots/plugins': 'a directory',
    lock: 'a file',
    'journal.jsonl': 'a file',
    'installed.json': 'a file',
    'audit.jsonl': 'a file',
    reserve: 'a file',
  }
  for (const [name, expected] of Object.entries(kinds)) {
    it(`is named, with advice: ${name} is not ${expected}`, async t => {
      const layout = await prepareTemporaryHost(t)
      const path = join(layout.own, name)
      rmSync(path, { recursive: true, force: true })
      if (expected === 'a file') mkdirSync(path)
      else writeFileSync(path, '')
      await assert.rejects(
        prepareHost({ layout, sharedRoot: { isAllowed: false } }, collectLog()),
        error =>
          error instanceof DeploymentError &&
          error.code === 'host_not_writable' &&
          error.message.includes(`${path} must be ${expected}`) &&
          error.message.includes('Move that away'),
      )
    })
  }
})

describe('a file in place of the snapshots of a plugin', () => {
  it('is named, with advice', async t => {
    const layout = await prepareTemporaryHost(t)
    const path = join(layout.snapshots, 'plugins/greeter')
    writeTree(layout.snapshots, { 'plugins/greeter': '' })
    const refused = (error: unknown) =>
      error instanceof DeploymentError &&
      error.message.includes(`${path} must be`) &&
      error.message.includes('Move that away')
    assert.throws(() => checkHost(hostOf(layout), { shelf: 'plugins', id: 'greeter', directory: 'plugins' }), refused)
  })
})

function hostOf(layout: Layout): SwitchingHost {
  return { layout, keepPathsOf: () => ['data'] }
}
