import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Artifact } from './artifact.ts'
import { firstLineOf } from './first-line.ts'

export interface HubProcess {
  /** The base URL that serves the artifact of this name. */
  urlOf(name: string): string
  stop(): Promise<void>
}

/**
 * Serves the artifacts on loopback, from a separate process, so that serving costs every contender the same. Rejects if
 * that process ends before it listens.
 */
export async function startHub(artifacts: Readonly<Record<string, Artifact>>, folder: string): Promise<HubProcess> {
  const catalogue = join(folder, 'catalogue.json')
  writeFileSync(catalogue, JSON.stringify(artifacts))
  const child = spawn(process.execPath, [join(import.meta.dirname, 'hub.ts'), catalogue], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const url = await firstLineOf(child)
  return {
    urlOf: name => `${url}/${name}`,
    async stop() {
      child.kill()
      await exited
    },
  }
}
