import { openArtifactCache } from '../bench/artifact-cache.ts'
import { type FileSystem, openFileSystem, probe } from '../bench/file-system.ts'
import { hubLoadReport } from '../bench/load/hub-load.ts'
import { canMeasureMemory, measureFootprint, recordFootprint } from '../bench/measure.ts'
import { chooseOptions, OPTIONS, type Options, PURPOSE } from '../bench/options.ts'
import { machineFacts } from '../bench/programs.ts'
import { interruptionIfAny, stopOnSignals } from '../bench/race.ts'
import { growthReport } from '../bench/reports/growth.ts'
import { blocksTable, projectReport } from '../bench/reports/limits.ts'
import { profileReport } from '../bench/reports/profile.ts'
import { type Place, resultsTable, runRaces, seconds, writeSection } from '../bench/results.ts'
import { runProgram } from './program.ts'

await runProgram({
  name: 'npm run bench',
  purpose: PURPOSE,
  options: OPTIONS,
  async run(values) {
    const options = chooseOptions(values)
    try {
      if (options.record) recordFootprint(measureFootprint(options.repository))
      else await runBench(options)
    } catch (error) {
      process.stderr.write(`${explain(interruptionIfAny() ?? error)}\n`)
      process.exitCode = 1
    }
  },
})

/** Returns the message of an expected error, such as a missing program, and the stack trace of any other error. */
function explain(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return 'code' in error || error === interruptionIfAny() ? error.message : (error.stack ?? error.message)
}

async function runBench(chosen: Options): Promise<void> {
  const cache = openArtifactCache(chosen.cache)
  const fileSystem = openFileSystem(chosen.fileSystem)
  stopOnSignals()
  try {
    const conditions = conditionsOn(fileSystem)
    const place = { repository: chosen.repository, cache, folder: fileSystem.folder }
    const report = await runChosen(chosen, place)
    const text = `${conditions.map(line => `- ${line}`).join('\n')}\n\n${report}`
    process.stdout.write(`${text}\n`)
    if (chosen.write) writeSection('races', text)
  } finally {
    fileSystem.close()
  }
}

async function runChosen(chosen: Options, place: Place): Promise<string> {
  if (chosen.growth) return await growthReport(place)
  if (chosen.profile) return await profileReport(chosen.races, place)
  if (chosen.blocks) return await blocksTable(chosen.races, place)
  if (chosen.hub) return await hubLoadReport(place)
  if (chosen.project) return await projectReport(place)
  const { rows, skipped } = await runRaces(chosen.races, place)
  return [resultsTable(rows), ...skipped].join('\n\n')
}

function conditionsOn(fileSystem: FileSystem): string[] {
  const { createMs, deleteMs } = probe(fileSystem)
  return [
    ...machineFacts(),
    `File system: ${fileSystem.description}; creating 3,000 small files takes ${seconds(createMs)}, deleting them ${seconds(deleteMs)}`,
    ...(canMeasureMemory ? [] : ['Skipped: peak memory, because this machine has no GNU time.']),
  ]
}
