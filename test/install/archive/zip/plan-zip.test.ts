import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { promisify } from 'node:util'
import { buildZip, file } from '../../../archives/zip-builder.ts'
import { inTemporaryDirectory } from '../verified-artifact.ts'

const run = promisify(execFile)

/** An object for each file would take a hundred and more. */
const MAX_HEAP_BYTES_PER_FILE = 50

/** A ZIP of so many files, in a folder. */
function writeZip(directory: string, files: number): string {
  const path = join(directory, `${files}.zip`)
  writeFileSync(
    path,
    buildZip(Array.from({ length: files }, (_, at) => file(`top/folder-${at % 100}/file-number-${at}`))),
  )
  return path
}

describe('planZip', () => {
  it('leaves next to nothing on the heap for each file, however many there are', async () => {
    await inTemporaryDirectory(async directory => {
      const [small, large] = [writeZip(directory, 500), writeZip(directory, 10_000)]
      const child = join(import.meta.dirname, 'planned-zip-heap.ts')
      const { stdout } = await run(process.execPath, ['--expose-gc', child, small, large])
      const planned: { files: number; bytes: number } = JSON.parse(stdout)
      assert.equal(planned.files, 10_000)
      const perFile = planned.bytes / planned.files
      assert.ok(perFile < MAX_HEAP_BYTES_PER_FILE, `${perFile} bytes for each file`)
    })
  })
})
