import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { after, afterEach, before, describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { createGzip } from 'node:zlib'
import type { DeployError } from '../../src/core/errors.ts'
import { mountMemory, whyNoMounting } from '../e2e/harness/mounts.ts'
import { whyLeftToCi } from '../extent.ts'
import { whyNoGitServer } from './git-server.ts'
import { type FetchOptions, type GitStage, openGitStage } from './git-stage.ts'

const skip = whyNoGitServer() ?? false
const MIB = 1024 * 1024
const REF = 'a1'.repeat(20)
const ADVERTISEMENT = { 'content-type': 'application/x-git-upload-pack-advertisement' }

describe('git, while it fetches a part,', { skip }, () => {
  let stage: GitStage
  before(async () => {
    stage = await openGitStage()
  })
  afterEach(() => {
    stage.server.intercept = undefined
  })
  after(() => stage.close())

  const refusal = (options: FetchOptions = {}, name = 'served', ref = REF): Promise<DeployError> =>
    stage.refusal({ url: `${stage.server.url}/${name}`, ref }, options)

  it('uses little memory: an endless compressed list of refs ends below 256 MiB', async () => {
    let most = 0
    stage.server.intercept = (_, response) => {
      sendRefsForever(response, () => {
        most = Math.max(most, ...workingIn(stage.folder).map(residentBytes))
      })
      return true
    }
    const { code } = await refusal({ request: { maxArtifactBytes: 64 * MIB } })
    assert.equal(code, 'archive_too_large')
    assert.ok(most > 16 * MIB && most < 256 * MIB, `${most} bytes`)
  })

  it('receives no more than max-artifact-bytes from the network, whatever the bytes contain', async () => {
    let sent = 0
    stage.server.intercept = (_, response) => {
      response.writeHead(200, ADVERTISEMENT)
      sendForever(response, refLines(), bytes => {
        sent += bytes
      })
      return true
    }
    const { code } = await refusal({ request: { maxArtifactBytes: MIB } })
    assert.equal(code, 'archive_too_large')
    assert.ok(sent < 64 * MIB, `${sent} bytes`)
  })

  it('does not spend its time on a huge tree of empty trees', { skip: whyLeftToCi() }, async () => {
    const repository = stage.repository('hollow')
    let level = repository.git(['mktree'], '')
    for (let depth = 0; depth < 12; depth++)
      level = repository.tree(Array.from({ length: 50 }, (_, index) => `040000 tree ${level}\td${index}`))
    const ref = repository.commitTree(level)
    const extraction = { maxExtractedBytes: MIB, maxEntries: 100 }
    const { code } = await refusal({ request: { extraction } }, 'hollow', ref)
    assert.equal(code, 'archive_too_large')
  })

  it('writes no more than the file system has room for', { skip: whyNoMounting() }, async t => {
    const ref = stage.repository('wide').commit({ a: randomBytes(4 * MIB) })
    assert.equal((await refusal({ folder: mountMemory(t, 'size=32m') }, 'wide', ref)).code, 'disk_full')
    const folder = mountMemory(t, 'size=66m')
    const { code, message } = await refusal({ folder }, 'wide', ref)
    assert.equal(code, 'disk_full')
    assert.match(message, /has room for/)
  })

  it('uses only what earlier sources have left: entries, received bytes and unpacked bytes', {
    skip: whyLeftToCi(),
  }, async () => {
    const commit = stage.repository('twice').commit({ 'x/a': randomBytes(20_000), b: 'b' })
    const source = { from: 'git' as const, url: `${stage.server.url}/twice`, ref: commit, subdirectory: undefined }
    const part = { shelf: 'plugins', id: 'a', source, sha256: null }
    const past = { installed: undefined, history: [], wasReplaced: () => false }
    for (const [index, request] of [
      { extraction: { maxExtractedBytes: MIB, maxEntries: 5 } },
      { extraction: { maxExtractedBytes: 30_000, maxEntries: 100 } },
      { maxArtifactBytes: 40_000 },
    ].entries()) {
      const supplier = stage.supplier(request)
      const folders = ['first', 'second'].map(name => join(stage.folder, `${name}-${index}`))
      for (const folder of folders) mkdirSync(folder)
      const [first = '', second = ''] = folders
      await supplier.fetch({ part, past, folder: first })
      await assert.rejects(supplier.fetch({ part, past, folder: second }), { code: 'archive_too_large' })
    }
  })

  it('does not start without its limits: a shell that cannot set them is reported', async () => {
    assert.equal((await refusal({ request: { maxArtifactBytes: Number.NaN } })).code, 'source_not_supported')
  })

  for (const words of ['signal 25', 'x\nerror: index-pack died of signal 25\nfatal: Out of memory, malloc failed']) {
    it(`is not reported as having reached a limit when the server says ${JSON.stringify(words)}`, async () => {
      stage.server.intercept = (_, response) => {
        response
          .writeHead(200, ADVERTISEMENT)
          .end(`${packet('# service=git-upload-pack\n')}0000${packet(`ERR ${words}`)}`)
        return true
      }
      assert.equal((await refusal()).code, 'artifact_unavailable')
    })
  }

  it('ends when the process that started it is killed during a fetch, even if the server keeps the connection open', async () => {
    const folder = join(stage.folder, 'killed')
    mkdirSync(folder)
    const request = { ca: stage.server.certificate.cert, hubUrl: stage.server.url }
    const source = { url: `${stage.server.url}/served`, ref: REF }
    const task = { folder, source, request: { ...request, gitTokens: [[stage.server.host, 'a-secret-token']] } }
    const host = spawn(process.execPath, [join(import.meta.dirname, 'dying-host.ts'), 'fetch', JSON.stringify(task)])
    stage.server.intercept = (_, response) => {
      response.writeHead(200, ADVERTISEMENT).write(packet('# service=git-upload-pack\n'))
      host.kill('SIGKILL')
      return true
    }
    await once(host, 'exit')
    while (workingIn(folder).length > 0) await setTimeout(20)
  })

  it('ends when the process that started it is killed while git works without a server', {
    skip: whyLeftToCi(),
  }, async () => {
    const folder = join(stage.folder, 'alone')
    mkdirSync(folder)
    const program = join(import.meta.dirname, 'dying-host.ts')
    const { signal, stdout } = spawnSync(process.execPath, [program, 'idle', JSON.stringify({ folder })])
    assert.deepEqual([signal, stdout.toString()], ['SIGKILL', 'waiting\n'])
    while (workingIn(folder).length > 0) await setTimeout(20)
  })
})

function packet(text: string): string {
  return (text.length + 4).toString(16).padStart(4, '0') + text
}

function refLines(): Buffer {
  return Buffer.from(packet(`${REF} refs/heads/${'x'.repeat(900)}\n`).repeat(4000))
}

function sendRefsForever(response: ServerResponse, onSent: () => void): void {
  response.writeHead(200, { ...ADVERTISEMENT, 'content-encoding': 'gzip' })
  const gzip = createGzip({ level: 1 })
  gzip.pipe(response)
  gzip.write(`${packet('# service=git-upload-pack\n')}0000`)
  response.once('close', () => gzip.destroy())
  sendForever(gzip, refLines(), onSent)
}

function sendForever(stream: NodeJS.WritableStream, piece: Buffer, onSent: (bytes: number) => void): void {
  let isOver = false
  stream.once('close', () => {
    isOver = true
  })
  const more = (): void => {
    if (isOver) return
    onSent(piece.length)
    if (stream.write(piece)) setImmediate(more)
    else stream.once('drain', more)
  }
  more()
}

/** The ids of the processes whose repository is below a folder. */
function workingIn(folder: string): string[] {
  return readdirSync('/proc').filter(pid => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/environ`, 'utf8').includes(`GIT_DIR=${folder}/`)
    } catch {
      return false
    }
  })
}

function residentBytes(pid: string): number {
  try {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024
  } catch {
    return 0
  }
}
