import { verify } from 'node:crypto'
import type { SignedBytes } from '../../core/trust/sealed-signature.ts'

/** Checking this many bytes takes about as long as starting a thread. */
const MAX_BYTES_AT_ONCE = 8 * 1024 * 1024

const IN_A_THREAD = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { verify } = require('node:crypto')
  const { bytes, key, signature } = workerData
  parentPort.postMessage(verify(null, bytes, key, signature) ? bytes : undefined, [bytes.buffer])
`

/**
 * Returns the bytes if their Ed25519 signature is valid, otherwise undefined. Large artifacts are checked in a separate
 * thread, so that signals are handled meanwhile. A large artifact must be alone in its buffer, because the buffer is
 * moved to the thread and back, which leaves the given Buffer empty. (Node's own asynchronous form would copy the bytes
 * instead.) Throws the signal's reason once the signal is aborted.
 */
export async function checkEd25519(signed: SignedBytes, signal?: AbortSignal): Promise<Buffer | undefined> {
  signal?.throwIfAborted()
  const { bytes, key, signature } = signed
  if (bytes.length > MAX_BYTES_AT_ONCE) return await checkInThread(signed, signal)
  return verify(null, bytes, key, signature) ? bytes : undefined
}

async function checkInThread(signed: SignedBytes, signal?: AbortSignal): Promise<Buffer | undefined> {
  // Loaded on demand: most runs check nothing this large.
  const { Worker } = await import('node:worker_threads')
  signal?.throwIfAborted()
  const transferList = [signed.bytes.buffer as ArrayBuffer]
  const worker = new Worker(IN_A_THREAD, { eval: true, workerData: signed, transferList, env: {} })
  const stop = (): void => void worker.terminate()
  signal?.addEventListener('abort', stop)
  try {
    return await new Promise<Buffer | undefined>((resolve, reject) => {
      worker.once('message', bytes => resolve(bytes instanceof Uint8Array ? asBuffer(bytes) : undefined))
      worker.once('error', reject)
      worker.once('exit', code =>
        reject(signal?.reason ?? new Error(`The signature check ended with exit code ${code}.`)),
      )
    })
  } finally {
    signal?.removeEventListener('abort', stop)
  }
}

function asBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength)
}
