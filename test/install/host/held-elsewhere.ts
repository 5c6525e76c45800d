import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

const HOLDER = join(import.meta.dirname, 'lock-holder.ts')

export interface OtherHolder {
  /** Kills the process, and resolves when it is gone. */
  kill(): Promise<void>
}

/**
 * Starts a process that takes the lock and keeps it until it is killed, at the latest when the test ends. Resolves once
 * the process has the lock. `through` is a command that runs the process, for example in a namespace.
 */
export async function holdElsewhere(
  t: TestContext,
  lock: string,
  through: readonly string[] = [],
): Promise<OtherHolder> {
  const [program = process.execPath, ...args] = [...through, ...(through.length > 0 ? [process.execPath] : [])]
  const child = spawn(program, [...args, HOLDER, lock], { stdio: ['pipe', 'pipe', 'pipe'] })
  let said = ''
  child.stderr.on('data', text => {
    said += text
  })
  const gone = once(child, 'exit')
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL')
    await gone
  }
  t.after(kill)
  await Promise.race([once(child.stdout, 'data'), gone.then(() => assert.fail(`The process has ended: ${said}`))])
  return { kill }
}

/** Changes facts about the holder in a lock file. */
export function rewriteHolder(lock: string, changes: Record<string, unknown>): void {
  const holder = JSON.parse(readFileSync(lock, 'utf8'))
  writeFileSync(lock, JSON.stringify({ ...holder, ...changes }))
}
