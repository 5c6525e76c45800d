import { rmSync } from 'node:fs'
import type { LocalStage } from '../../../local/stage.ts'

const prepared = new Map<string, Promise<LocalStage>>()
const folders: string[] = []

process.once('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

/**
 * A closed stage that all tests of a file with this name begin with, each on a copy. The first one prepares it. It is
 * removed when the process ends.
 */
export function preparedOnce<Opened extends LocalStage>(name: string, prepare: () => Promise<Opened>): Promise<Opened> {
  const known = prepared.get(name) as Promise<Opened> | undefined
  if (known !== undefined) return known
  const stage = prepare().then(closeAndKeep)
  prepared.set(name, stage)
  return stage
}

async function closeAndKeep<Opened extends LocalStage>(stage: Opened): Promise<Opened> {
  folders.push(stage.folder)
  await stage.close(true)
  return stage
}
