import assert from 'node:assert/strict'
import { mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { ArchiveError } from '../../../../src/core/errors.ts'
import type { VerifiedArtifact } from '../../../../src/core/trust/signature.ts'
import { ReadWindow } from '../../../../src/install/archive/read-window.ts'
import { extractZip } from '../../../../src/install/archive/zip/extract-zip.ts'
import { planZip } from '../../../../src/install/archive/zip/plan-zip.ts'
import { TimeSlice } from '../../../../src/install/files/time-slice.ts'
import { HOSTILE_LIMITS, HOSTILE_ZIPS, type HostileZip } from '../../../archives/hostile-zips.ts'
import { inTemporaryDirectory, withVerifiedArtifact } from '../verified-artifact.ts'

async function attack(hostile: HostileZip, artifact: VerifiedArtifact, target: string): Promise<unknown> {
  if (hostile.platform === undefined) return extractZip(artifact, { target, limits: HOSTILE_LIMITS })
  const rules = { ...HOSTILE_LIMITS, platform: hostile.platform, shape: 'flattened' as const }
  return planZip({ window: new ReadWindow(artifact), rules, slice: new TimeSlice() })
}

describe('a hostile archive', () => {
  let refused = 0

  for (const hostile of HOSTILE_ZIPS) {
    const [code] = hostile.name.split('--')
    it(`is refused: ${hostile.name}`, async () => {
      await inTemporaryDirectory(async directory => {
        const target = join(directory, 'target')
        mkdirSync(target)
        await withVerifiedArtifact(hostile.bytes(), directory, async artifact => {
          const isExpected = (error: unknown) => error instanceof ArchiveError && error.code === code
          await assert.rejects(attack(hostile, artifact, target), isExpected)
        })
        assert.deepEqual(readdirSync(directory), ['target'])
        if (hostile.onlyWhileExtracting === undefined) assert.deepEqual(readdirSync(target), [])
        refused += 1
      })
    })
  }

  it('has a unique name in the table', () => {
    assert.equal(new Set(HOSTILE_ZIPS.map(({ name }) => name)).size, HOSTILE_ZIPS.length)
  })

  it('is refused in every case of the table', t => {
    t.diagnostic(`${refused} of ${HOSTILE_ZIPS.length} hostile archives refused`)
    assert.equal(refused, HOSTILE_ZIPS.length)
  })
})
