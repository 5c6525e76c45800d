import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { whyLeftToCi } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import {
  bindMount,
  mountLoop,
  mountMemory,
  mountOver,
  overlayOver,
  run,
  whyNoExt4,
  whyNoMounting,
} from '../harness/mounts.ts'
import { assertSucceeds, type Fleet, openFleet, type PreparedHost } from '../harness/prepared-host.ts'
import { openGate } from '../harness/untrusted-hub.ts'

type Mount = (t: TestContext, path: string) => void

const KINDS: Record<string, { mount: Mount; skip: string | false }> = {
  'a file system in memory': { mount: (t, path) => mountOver(t, path, 'size=8m'), skip: false },
  'an ext4 file system': { mount: mountLoop, skip: whyNoExt4() || whyLeftToCi() },
  'a bind mount of the same file system': {
    mount: (t, path) => bindMount(t, `${path}-source`.replace('/plugins/', '/'), path),
    skip: false,
  },
}

const PLACES: Record<string, { path: string; code: ErrorCode }> = {
  'at the install path': { path: 'plugins/greeter', code: 'unsafe_host' },
  'inside the plugin': { path: 'plugins/greeter/uploads', code: 'unsafe_host' },
  'deep inside the plugin': { path: 'plugins/greeter/var/lib/my uploads', code: 'unsafe_host' },
  'at a kept path': { path: 'plugins/greeter/data', code: 'unsafe_host' },
  'at the shelf': { path: 'plugins', code: 'host_not_writable' },
  'at our own folder for snapshots': { path: '.hub-deploy/snapshots', code: 'host_not_writable' },
}

describe('an update of a host with a mount', { skip: whyNoMounting() }, () => {
  let fleet: Fleet
  before(async () => {
    fleet = await openFleet()
  })
  after(() => fleet.close())

  for (const [where, { path, code }] of Object.entries(PLACES)) {
    for (const [what, { mount, skip }] of Object.entries(KINDS)) {
      it(`${where}, ${what}, is refused before the download, with nothing moved or emptied`, { skip }, async t => {
        const host = fleet.newHost(`${where}-${what}`.replaceAll(' ', '-'))
        const mounted = join(host.root, path)
        mkdirSync(mounted, { recursive: true })
        mount(t, mounted)
        writeFileSync(join(mounted, 'precious'), 'of the host')
        await assertRefused(t, host, code, code === 'unsafe_host' ? mounted : dirnameOf(mounted))
        assert.equal(readFileSync(join(mounted, 'precious'), 'utf8'), 'of the host')
      })
    }
  }

  it('around the whole project root succeeds', async t => {
    const folder = mountMemory(t, 'size=16m')
    const host = fleet.newHost('around', join(folder, 'host'))
    bindMount(t, host.root, host.root)
    assertSucceeds(await host.deploy())
    assert.deepEqual(host.tree(), fleet.new)
  })

  it('of a single file at a kept path is refused', async t => {
    const host = fleet.newHost('file')
    const [source, path] = [join(host.root, 'secret'), join(host.root, 'plugins/greeter/.env')]
    for (const file of [source, path]) writeFileSync(file, 'TOKEN=1')
    run('mount', '--bind', source, path)
    t.after(() => run('umount', path))
    await assertRefused(t, host, 'unsafe_host', path)
  })

  it('elsewhere, behind a kept path that is a symlink, succeeds and keeps its contents', async t => {
    const host = fleet.newHost('symlinked-volume')
    const volume = mountMemory(t, 'size=1m')
    writeFileSync(join(volume, 'precious'), 'of the host')
    renameSync(join(host.root, 'plugins/greeter/data'), join(host.root, 'old-data'))
    symlinkSync(volume, join(host.root, 'plugins/greeter/data'))
    for (const version of ['2.0.0', '1.0.0', '2.0.0']) assertSucceeds(await host.deploy({ version }))
    assert.equal(readFileSync(join(host.root, 'plugins/greeter/data/precious'), 'utf8'), 'of the host')
  })

  it('that appears during the download is refused at the switch', async t => {
    const host = fleet.newHost('late')
    const mounted = join(host.root, 'plugins/greeter/uploads')
    mkdirSync(mounted)
    const gate = await openGate(t, fleet.stage.hub.url, route => {
      if (route !== 'artifact') return
      mountOver(t, mounted, 'size=1m')
      writeFileSync(join(mounted, 'precious'), '')
    })
    const { outputs, log } = await host.deploy({ 'hub-url': gate.url })
    assert.deepEqual([outputs['outcome'], outputs['error-code']], ['failed', 'unsafe_host'], log)
    assert.ok(existsSync(join(mounted, 'precious')))
  })

  it('in a snapshot never loses its contents when the snapshot is discarded', async t => {
    const host = fleet.newHost('in-snapshot')
    const mounted = join(host.root, '.hub-deploy/snapshots/plugins/greeter/1-0.9.0/uploads')
    mountOver(t, mounted, 'size=1m')
    writeFileSync(join(mounted, 'precious'), '')
    const result = await host.deploy()
    assertSucceeds(result)
    assert.ok(result.log.includes(`${mounted} is a mount point`), result.log)
    assert.ok(existsSync(join(mounted, 'precious')))
  })

  const skip = whyNoMounting('overlay')
  it('that is an overlay with the plugin in a lower layer is refused before the download', { skip }, async t => {
    const host = fleet.newHost('overlay', join(mountMemory(t, 'size=16m'), 'host'))
    overlayOver(t, host.root)
    const { log } = await assertRefused(t, host, 'unsafe_host', 'lower layer')
    assert.ok(log.includes(join(host.root, 'plugins/greeter')), log)
    const place = join(host.root, 'plugins/greeter')
    run('cp', '-a', place, `${place}-copy`)
    run('rm', '-r', place)
    run('mv', `${place}-copy`, place)
    assertSucceeds(await host.deploy())
    assert.deepEqual(host.tree(), fleet.new)
  })

  async function assertRefused(
    t: TestContext,
    host: PreparedHost,
    code: ErrorCode,
    named: string,
  ): Promise<ActionResult> {
    const before = listTree(join(host.root, 'plugins'))
    const snapshots = listTree(join(host.root, '.hub-deploy/snapshots'))
    let artifacts = 0
    const gate = await openGate(t, fleet.stage.hub.url, route => {
      if (route === 'artifact') artifacts++
    })
    const result = await host.deploy({ 'hub-url': gate.url })
    const { outputs, log } = result
    assert.deepEqual([outputs['outcome'], outputs['error-code'], outputs['changed']], ['failed', code, 'false'], log)
    assert.equal(artifacts, 0)
    assert.ok(log.includes(named), log)
    assert.deepEqual(listTree(join(host.root, 'plugins')), before)
    assert.deepEqual(listTree(join(host.root, '.hub-deploy/snapshots')), snapshots)
    return result
  }
})

function dirnameOf(path: string): string {
  return path.split('/').slice(0, -1).join('/')
}
