import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describe, it, type TestContext } from 'node:test'
import { openPrivateFile } from './private-file.ts'
import { createTestedWire } from './tested-wire.ts'

const MEBIBYTE = 1024 * 1024
const BODY_BYTES = 128 * MEBIBYTE
/** What a socket reads at once. */
const CHUNK_BYTES = 64 * 1024

/** In a process of its own, whose memory does not count. */
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

/** The bytes of all buffers, used or not, which nine in ten samples of a download do not exceed. */
async function bufferedBytes(url: string, fd: number): Promise<number> {
  const samples: number[] = []
  const onProgress = (received: number) => {
    // Not for each chunk: the sample is garbage of its own.
    if (received % (2 * MEBIBYTE) < CHUNK_BYTES) samples.push(process.memoryUsage().arrayBuffers)
  }
  const limits = { maxBytes: BODY_BYTES, timeoutMs: 600_000 }
  const answer = await createTestedWire().download({ url, fd, onProgress, ...limits })
  assert.ok(answer.ok && answer.size === BODY_BYTES)
  return samples.sort((a, b) => a - b)[Math.floor(samples.length * 0.9)] ?? Number.NaN
}

describe('weighOnHeap', () => {
  it('has the used chunks of a download collected soon', async t => {
    const url = await startServer(t)
    const { fd } = openPrivateFile(t)
    const found: number[] = []
    // On a busy machine, the thread that frees them may come late once.
    for (let run = 0; run < 3; run++) found.push(await bufferedBytes(url, fd))
    const least = Math.min(...found)
    assert.ok(least < 32 * MEBIBYTE, `at least ${least} bytes`)
  })
})
