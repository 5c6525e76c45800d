import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { mkdirSync, statSync, truncateSync } from 'node:fs'
import { describe, it } from 'node:test'
import { artifactPath, keepArtifact, streamArtifact } from '../../hub/artifacts.ts'
import { openStore } from '../../hub/store.ts'
import { isOpen } from './open-files.ts'
import { newFolder } from './running-hub.ts'

describe('the bytes of an artifact', () => {
  it('end with an error when the file becomes shorter while it is sent', async t => {
    const store = openStore(newFolder(t))
    t.after(() => store.close())
    const bytes = randomBytes(8_000_000)
    const artifact = { sha256: createHash('sha256').update(bytes).digest('hex'), size: bytes.length }
    await keepArtifact(store, artifact.sha256, bytes)
    const reader = (await streamArtifact(store, artifact)).getReader()
    await reader.read()
    truncateSync(artifactPath(store, artifact.sha256), 4_000_000)
    const readOn = async () => {
      while (!(await reader.read()).done);
    }
    await assert.rejects(readOn(), /became shorter/)
  })
  it('keep no file open when the disk cannot read them', async t => {
    const store = openStore(newFolder(t))
    t.after(() => store.close())
    const sha256 = 'a'.repeat(64)
    const path = artifactPath(store, sha256)
    // A folder can be opened, and not read.
    mkdirSync(path)
    const reader = (await streamArtifact(store, { sha256, size: statSync(path).size })).getReader()
    await assert.rejects(reader.read(), { code: 'EISDIR' })
    assert.equal(isOpen(path), false)
  })
})
