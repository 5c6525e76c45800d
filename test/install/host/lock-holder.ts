import { acquireLock } from '../../../src/install/host/lock.ts'

/** `node lock-holder.ts <lock>`: takes the lock, prints `held`, and releases the lock when stdin ends. */
const [path = ''] = process.argv.slice(2)
const lock = await acquireLock({ path, timeoutMs: 60_000, runUrl: null, log: () => {} })
console.log('held')
process.stdin.on('end', () => lock.release()).resume()
