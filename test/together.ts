import { createRequire } from 'node:module'
import { resolve } from 'node:path'
import { after, describe } from 'node:test'
import { byExtent } from './extent.ts'

const ROOT = resolve(import.meta.dirname, '..')
/** The time after which a process counts as hanging. Even on a busy machine, no process takes nearly that long. */
const TIMEOUT_MS = byExtent({ sample: 600_000, ci: 1_800_000, full: 86_400_000 })
/** Loads a file synchronously, so that its tests and hooks belong to the suite that is being described. */
const require = createRequire(import.meta.url)

/**
 * Runs test files one after another in this process, each in a suite with its name. The files cannot use `await`
 * outside tests and hooks. A process that ends early or hangs fails, and names the files that have not ended.
 */
export function runTogether(files: readonly string[], timeoutMs = TIMEOUT_MS): void {
  const open = new Set(files)
  process.once('exit', () => {
    if (open.size === 0) return
    process.exitCode = 1
    process.stderr.write(`The process ended before the tests in these files had ended: ${[...open].join(', ')}\n`)
  })
  setTimeout(() => process.exit(1), timeoutMs).unref()
  for (const file of files) {
    describe(file, () => {
      require(resolve(ROOT, file))
      // Runs after the hooks of the file itself, because one of them may end the process.
      after(() => void open.delete(file))
    })
  }
}
