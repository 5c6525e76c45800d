import { verify } from 'node:crypto'
import type { SignedBytes } from '../../core/trust/sealed-signature.ts'

/** Up to here the check takes a few milliseconds, less than starting a thread for it. */
const MAX_BYTES_AT_ONCE = 8 * 1024 * 1024

const IN_A_THREAD = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { verify } = require('node:crypto')
  const { bytes, key, signature } = workerData
  parentPort.postMessage(verify(null, bytes, key, signature))
`

/**
 * Whether an Ed25519 signature is valid for all of the bytes. Large artifacts are checked in a thread of their own,
 * so that signals are handled meanwhile; they are not copied when they are in shared memory (Node's own asynchronous
 * form copies).
 * Throws the signal's reason once it is aborted.
 */
export async function checkEd25519(signed: SignedBytes, signal?: AbortSignal): Promise<boolean> {
  signal?.throwIfAborted()
  const { bytes, key, signature } = signed
  return bytes.length > MAX_BYTES_AT_ONCE ? await checkInThread(signed, signal) : verify(null, bytes, key, signature)
}

async function checkInThread({ bytes, key, signature }: SignedBytes, signal?: AbortSignal): Promise<boolean> {
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
      worker.once('exit', code => reject(signal?.reason ?? new Error(`The checking thread ended with code ${code}.`)))
    })
  } finally {
    signal?.removeEventListener('abort', stop)
  }
}
