import { rmSync } from 'node:fs'
import type { LocalStage } from '../../../local/stage.ts'

const prepared = new Map<string, Promise<LocalStage>>()
const folders: string[] = []

process.once('exit', () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

/**
 * A closed stage of this name, from which each test of a file can open its own copy. The first test prepares the stage,
 * which is removed when the process ends.
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
