import { execFile } from 'node:child_process'
import { resolve } from 'node:path'
import { SIGNING_SECRET } from './running-hub.ts'

export const CLI = resolve(import.meta.dirname, '../../hub/cli.ts')

export interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs a command of the hub, with a signing secret in the variable HUB_TEST_SECRET. */
export function hub(...args: string[]): Promise<Ended> {
  const env = { ...process.env, HUB_TEST_SECRET: SIGNING_SECRET }
  return new Promise(resolved => {
    execFile(process.execPath, [CLI, ...args], { env }, (error, stdout, stderr) => {
      resolved({ code: typeof error?.code === 'number' ? error.code : error ? -1 : 0, stdout, stderr })
    })
  })
}
