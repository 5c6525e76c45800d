import assert from 'node:assert/strict'
import { once } from 'node:events'
import { truncateSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { artifactPath } from '../../hub/artifacts.ts'
import { endStalledAnswers } from '../../hub/http/stalled-answers.ts'
import { HANG_LIMIT_MS } from '../hang-limit.ts'
import { isOpen } from './open-files.ts'
import { runHub } from './running-hub.ts'

const STALL_MS = 100
/** More than the system buffers for both sides of a connection. */
const SIZE = 64 * 1024 * 1024

describe('an answer that its client does not read', { timeout: HANG_LIMIT_MS }, () => {
  it('is ended, and its file is closed', async t => {
    const hub = await runHub(t, { stallMs: STALL_MS })
    await hub.publish()
    const sha256 = String(hub.store.db.prepare('SELECT sha256 FROM versions').get()?.['sha256'])
    const path = artifactPath(hub.store, sha256)
    truncateSync(path, SIZE)
    hub.store.db.prepare('UPDATE versions SET size = ?').run(SIZE)
    const client = connect(Number(new URL(hub.url).port), '127.0.0.1')
    t.after(() => client.destroy())
    client.write(`GET /plugins/hello/install HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ${hub.newKey()}\r\n\r\n`)
    await once(client, 'readable')
    assert.match(String(client.read(15)), /^HTTP\/1\.1 200/)
    while (isOpen(path)) await setTimeout(STALL_MS / 10)
  })

  it('is not ended while the server still works on it', async t => {
    const server = createServer(async (_, response) => {
      await setTimeout(3 * STALL_MS)
      response.end('late')
    })
    endStalledAnswers(server, STALL_MS)
    t.after(() => server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    assert.equal(await response.text(), 'late')
  })
})
