import assert from 'node:assert/strict'
import { mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { ArchiveError } from '../../../src/core/errors.ts'
import { extractTar } from '../../../src/install/archive/extract-tar.ts'
import { HOSTILE_TAR_LIMITS, HOSTILE_TARS } from '../../archives/hostile-tars.ts'
import { temporaryDirectory } from '../temporary-directory.ts'
import { listTree } from './directory-listing.ts'
import { openedTar } from './sealed-artifact.ts'

describe('a hostile tar', () => {
  for (const { name, bytes } of HOSTILE_TARS) {
    const [code] = name.split('--')
    it(`is refused, and neither the refused entry nor a symlink is written: ${name}`, async t => {
      const directory = temporaryDirectory(t)
      const target = join(directory, 'target')
      mkdirSync(target)
      const isExpected = (error: unknown) => error instanceof ArchiveError && error.code === code
      await assert.rejects(extractTar(await openedTar(bytes()), { target, limits: HOSTILE_TAR_LIMITS }), isExpected)
      assert.deepEqual(readdirSync(directory), ['target'])
      for (const what of Object.values(listTree(target))) assert.match(what, /^(644|755) (?!special|evil)/)
    })
  }

  it('has a unique name in the table', () => {
    assert.equal(new Set(HOSTILE_TARS.map(({ name }) => name)).size, HOSTILE_TARS.length)
  })
})
