import { closeSync, openSync, unlinkSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { acquireLock } from '../../../src/install/host/lock.ts'

/**
 * `node lock-contender.ts <lock> <marker> [die]`: takes the lock, proves with an exclusive marker that no other
 * contender has the lock, and releases the lock. With `die`, it kills itself while it has the lock.
 */
const [path = '', marker = '', end] = process.argv.slice(2)
const lock = await acquireLock({ path, timeoutMs: 300_000, runUrl: null, log: () => {} })
closeSync(openSync(marker, 'wx'))
await setTimeout(5)
unlinkSync(marker)
if (end === 'die') process.kill(process.pid, 'SIGKILL')
lock.release()
