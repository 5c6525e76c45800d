import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { mountPointsIn, parseMountPoints } from '../../../src/install/files/mounts.ts'

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
})
