import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import {
  hasSpaceForAny,
  type MostSpace,
  mountPointsIn,
  type NeededSpace,
  OWN_INODES,
  parseMountPoints,
  requireSpace,
} from '../../../src/install/files/space.ts'
import { mountFoldingDisk, whyNoFoldingDisk } from '../../e2e/harness/folding-disk.ts'
import { bindMount } from '../../e2e/harness/mounts.ts'

const PLENTY = { bavail: 1_000_000, bsize: 4096, files: 1_000_000, ffree: 1_000_000 }
const NEEDED: NeededSpace = { sizes: [1, 5000, 0], inodes: 20 }

function require(free: Partial<typeof PLENTY>, needed = NEEDED): void {
  requireSpace('/srv/host', needed, path => {
    assert.equal(path, '/srv/host')
    return { ...PLENTY, ...free }
  })
}

describe('requireSpace', () => {
  it('accepts exactly the needed space', () => {
    require({ bavail: 3, ffree: 20 })
    requireSpace(tmpdir(), { sizes: [1], inodes: 1 })
  })

  it('counts whole blocks, because small files use them', () => {
    const message =
      'This run needs 12 KiB in /srv/host, but the file system of that directory has 8 KiB free. Nothing was changed: free some space there (df shows how much is free) and run again.'
    assert.throws(() => require({ bavail: 2 }), { code: 'disk_full', message })
  })

  it('refuses a file system with room for the bytes, but not for the inodes', () => {
    const message =
      'This run needs 20 inodes in /srv/host, one for each file, directory and symlink, but the file system of that directory has 19 left. Nothing was changed: remove some files there (df -i shows how many are free) and run again.'
    assert.throws(() => require({ ffree: 19 }), { code: 'disk_full', message })
  })

  it('does not count inodes if the file system has no fixed number of them', () => {
    require({ files: 0, ffree: 0 })
  })

  it('counts blocks no larger than those of a disk, even on a network file system', () => {
    require({ bavail: 1, bsize: 1024 * 1024 }, { sizes: Array(200).fill(1), inodes: 1 })
    assert.throws(() => require({ bavail: 1, bsize: 1024 * 1024 }, { sizes: Array(300).fill(1), inodes: 1 }), {
      code: 'disk_full',
    })
  })
})

describe('hasSpaceForAny', () => {
  const has = (free: Partial<typeof PLENTY>, most: MostSpace): boolean =>
    hasSpaceForAny('/srv/host', most, () => ({ ...PLENTY, ...free }))

  it('is true only if every division of the bytes among the entries has room', () => {
    const [entries, bytes] = [10, 3 * 4096]
    const divisions = [Array(entries).fill(1), [bytes], [bytes - 9, ...Array(9).fill(1)]]
    for (let bavail = 0; bavail <= 13; bavail++) {
      const free = { bavail, ffree: entries + OWN_INODES }
      if (!has(free, { bytes, entries })) continue
      assert.ok(bavail >= 12)
      for (const sizes of divisions) require(free, { sizes, inodes: entries + OWN_INODES })
    }
    assert.equal(has({ bavail: 13, ffree: entries + OWN_INODES }, { bytes, entries }), true)
  })

  it('counts inodes if the file system has a fixed number of them', () => {
    const most = { bytes: 1, entries: 10 }
    assert.equal(has({ ffree: 10 + OWN_INODES }, most), true)
    assert.equal(has({ ffree: 9 + OWN_INODES }, most), false)
    assert.equal(has({ files: 0, ffree: 0 }, most), true)
  })
})

const MOUNTINFO = `22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:26 / /proc rw,nosuid - proc proc rw
41 22 254:1 /var/data /srv/my\\040app/plugins/a\\134b rw - ext4 /dev/vda1 rw
42 22 254:1 / /srv/\\303\\274ber\\012line rw - ext4 /dev/vda1 rw
43 22 254:1 / /srv/gone//deleted rw - ext4 /dev/vda1 rw
`

describe('parseMountPoints', () => {
  it('decodes octal bytes, and leaves out deleted mount points', () => {
    const points = parseMountPoints(Buffer.from(MOUNTINFO.replace('\\303\\274', 'ü')))
    assert.deepEqual(points, ['/', '/proc', '/srv/my app/plugins/a\\b', '/srv/über\nline'])
  })
})

describe('mountPointsIn', () => {
  it('lists mounts at and below a path, and none above it or next to it', t => {
    if (process.platform !== 'linux') return t.skip('needs Linux')
    assert.ok(mountPointsIn('/proc').includes('/proc'))
    assert.deepEqual(mountPointsIn('/pro'), [])
    assert.deepEqual(mountPointsIn('/proc/self'), [])
  })

  it('lists a mount below a path that is spelled differently, on a file system that ignores case', {
    skip: whyNoFoldingDisk(),
  }, t => {
    const { mounted } = mountFoldingDisk(t)
    const point = join(mounted, 'plugins/greeter/data')
    bindMount(t, join(mounted, 'volume'), point)
    assert.deepEqual(mountPointsIn(join(mounted, 'plugins/greeter')), [point])
    assert.equal(mountPointsIn(join(mounted, 'Plugins/GREETER')).length, 1)
    mkdirSync(join(mounted, 'plugins/other'))
    assert.deepEqual(mountPointsIn(join(mounted, 'plugins/Other')), [])
  })
})
