import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { promisify } from 'node:util'
import { temporaryDirectory } from '../install/temporary-directory.ts'

const MEBIBYTE = 1024 * 1024
const BODY_BYTES = 128 * MEBIBYTE

/** A server in a separate process, whose memory does not count. */
const SERVER = `
  const { createServer } = require('node:http')
  const piece = Buffer.alloc(${MEBIBYTE})
  createServer((_, response) => {
    let left = ${BODY_BYTES / MEBIBYTE}
    const send = () => left-- > 0 ? response.write(piece, send) : response.end()
    send()
  }).listen(0, '127.0.0.1', function () { console.log(this.address().port) })
`

async function startServer(t: TestContext): Promise<string> {
  const server = spawn(process.execPath, ['-e', SERVER], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => server.kill())
  const [port] = await once(server.stdout, 'data')
  return `http://127.0.0.1:${Number(port)}/`
}

/**
 * Measures in a separate process, because this process may still have the buffers of earlier tests, and collects
 * garbage less often.
 */
async function bufferedBytes(url: string, path: string): Promise<number> {
  const program = join(import.meta.dirname, 'buffered-bytes.ts')
  const { stdout } = await promisify(execFile)(process.execPath, [program, url, path])
  assert.equal(statSync(path).size, BODY_BYTES)
  return Number(stdout)
}

describe('weighOnHeap', () => {
  it('causes the used chunks of a download to be collected soon', async t => {
    const url = await startServer(t)
    const path = join(temporaryDirectory(t), 'artifact')
    const found: number[] = []
    // On a busy machine, the thread that frees the buffers may be late in one run.
    for (let run = 0; run < 3; run++) found.push(await bufferedBytes(url, path))
    const least = Math.min(...found)
    assert.ok(least < 32 * MEBIBYTE, `at least ${least} bytes`)
  })
})
