import { openSync, statSync } from 'node:fs'
import { DEFAULT_MAX_ENTRIES, DEFAULT_MAX_EXTRACTED_BYTES } from '../../../src/core/identifiers.ts'
import { ReadWindow } from '../../../src/install/archive/pieces.ts'
import { type PlannedZip, planZip } from '../../../src/install/archive/zip-extract.ts'
import { TimeSlice } from '../../../src/install/files/time-slice.ts'

const [small = '', large = ''] = process.argv.slice(2)
const limits = { maxExtractedBytes: DEFAULT_MAX_EXTRACTED_BYTES, maxEntries: DEFAULT_MAX_ENTRIES }
const rules = { ...limits, platform: 'linux', shape: 'flattened' } as const

async function plan(path: string): Promise<PlannedZip> {
  const window = new ReadWindow({ fd: openSync(path, 'r'), size: statSync(path).size })
  return await planZip({ window, rules, slice: new TimeSlice() })
}

function heapBytes(): number {
  globalThis.gc?.()
  return process.memoryUsage().heapUsed
}

// The first call is not measured, because it also compiles functions and allocates memory that modules keep.
await plan(small)
const before = heapBytes()
const planned = await plan(large)
const bytes = heapBytes() - before
const { files, directories, symlinks } = planned.plan
process.stdout.write(JSON.stringify({ paths: files.length + directories.length + symlinks.length, bytes }))
