import { readFileSync } from 'node:fs'
import { extractZip, inTemporaryDirectory, withVerifiedArtifact } from './artifacts.ts'

const [umask = '', archive = '', target = ''] = process.argv.slice(2)

await inTemporaryDirectory(directory =>
  withVerifiedArtifact(readFileSync(archive), directory, async artifact => {
    process.umask(Number.parseInt(umask, 8))
    await extractZip(artifact, { target, limits: { maxExtractedBytes: 1000, maxEntries: 10 } })
  }),
)
