import { type KeyObject, verify } from 'node:crypto'

/** Up to here the check takes a few milliseconds, less than starting a thread for it. */
const MAX_BYTES_AT_ONCE = 8 * 1024 * 1024

const IN_A_THREAD = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { verify } = require('node:crypto')
  const { bytes, key, signature } = workerData
  parentPort.postMessage(verify(null, bytes, key, signature))
`

/**
 * Whether an Ed25519 signature holds for all of the bytes. Many of them are checked in a thread of its own, so that signals
 * are heard meanwhile; they are not copied when they lie in shared memory (Node's own asynchronous form does copy).
 * Throws the signal's reason once it is aborted.
 */
export async function checkEd25519(
  bytes: Buffer,
  key: KeyObject,
  signature: Buffer,
  signal?: AbortSignal,
): Promise<boolean> {
  signal?.throwIfAborted()
  return bytes.length > MAX_BYTES_AT_ONCE
    ? checkInThread(bytes, key, signature, signal)
    : verify(null, bytes, key, signature)
}

async function checkInThread(
  bytes: Buffer,
  key: KeyObject,
  signature: Buffer,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  // Loaded only here: most runs check nothing so large.
  const { Worker } = await import('node:worker_threads')
  signal?.throwIfAborted()
  const worker = new Worker(IN_A_THREAD, { eval: true, workerData: { bytes, key, signature }, env: {} })
  const stop = (): void => void worker.terminate()
  signal?.addEventListener('abort', stop)
  try {
    return await new Promise<boolean>((resolve, reject) => {
      worker.once('message', isValid => resolve(isValid === true))
      worker.once('error', reject)
      worker.once('exit', code => reject(signal?.reason ?? new Error(`The checking thread ended with ${code}.`)))
    })
  } finally {
    signal?.removeEventListener('abort', stop)
  }
}
