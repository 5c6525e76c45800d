import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { constants, zstdCompressSync } from 'node:zlib'
import type { ActionResult } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { HOSTILE_TAR_LIMITS, HOSTILE_TARS } from '../../archives/hostile-tars.ts'
import { file, pax, symlink, type TarItem } from '../../archives/tar-builder.ts'
import { sampled } from '../../extent.ts'
import { assertNothingStrays, listHost, readLocalReport } from '../harness/evidence.ts'
import { assertTemporariesGone, itRefuses, openDeployedStage, TO_KEY } from '../harness/project-evidence.ts'
import type { ProjectStage } from '../harness/project-stage.ts'
import { answerJson } from '../harness/untrusted-hub.ts'
import {
  answersOf,
  projectTar,
  type SealedOffer,
  sealBytes,
  sealTar,
  serveUntrustedProjectHub,
  type UntrustedProjectHub,
} from '../harness/untrusted-project-hub.ts'

/** The length of the header of a zstd frame that declares its content's size in four bytes. */
const FRAME_HEADER_BYTES = 9
/** A path that an archive may contain, but that is too long for the host below any folder. */
const TOO_LONG = 'd'.repeat(255).concat('/').repeat(16).slice(0, 4090)
const PRELOADED = join(import.meta.dirname, '../harness/signal-at-file.mjs')

let stage: ProjectStage
before(async () => {
  stage = await openDeployedStage()
})
after(() => stage.close())

/** 60 files of a plugin, each of this many bytes. zstd halves their size. */
function filesOf(bytes: number): TarItem[] {
  const text = createHash('shake128', { outputLength: (60 * bytes) / 2 }).digest('hex')
  return Array.from({ length: 60 }, (_, index) =>
    file(`plugins/cart/more/${index}`, text.slice(index * bytes, (index + 1) * bytes)),
  )
}

const FILES = filesOf(20_000)

describe('an archive that is refused', () => {
  const limits = {
    'max-extracted-bytes': String(HOSTILE_TAR_LIMITS.maxExtractedBytes),
    'max-entries': String(HOSTILE_TAR_LIMITS.maxEntries),
  }
  for (const { name, bytes } of sampled(HOSTILE_TARS, 2)) {
    const code = name.split('--')[0] as ErrorCode
    itRefuses(name, () => stage, {
      ...{ code, during: 'extracting', asked: TO_KEY, inputs: limits },
      offer: on => sealTar(bytes(), on.signingKey),
    })
  }

  const late: Record<string, { code: ErrorCode; inputs?: Record<string, string>; says?: RegExp; zstd: () => Buffer }> =
    {
      'whose second-to-last member has an unsafe path': {
        code: 'unsafe_archive',
        zstd: () => zstdCompressSync(projectTar({ more: [...FILES, file('../evil', 'evil'), file('last', 'x')] })),
      },
      'with an unsafe path after one that is too long for the host': {
        code: 'unsafe_archive',
        says: /"\.\.\/evil"/,
        zstd: () =>
          zstdCompressSync(
            projectTar({ more: [pax({ path: TOO_LONG }), file('cut', 'x'), ...FILES, file('../evil', 'x')] }),
          ),
      },
      'with a member below a symlink, at its end': {
        code: 'unsafe_archive',
        zstd: () => zstdCompressSync(projectTar({ more: [...FILES, symlink('l', 'plugins'), file('l/evil', 'x')] })),
      },
      'with a symlink that leads out, which only the whole listing shows': {
        code: 'unsafe_archive',
        zstd: () => zstdCompressSync(projectTar({ more: [symlink('l', 'plugins/../..'), ...FILES] })),
      },
      'with a second copy of a file at its end': {
        code: 'unsafe_archive',
        zstd: () => zstdCompressSync(projectTar({ more: [...FILES, file('manifest.json', '{}')] })),
      },
      'with more members than allowed': {
        code: 'archive_too_large',
        inputs: { 'max-entries': '60' },
        zstd: () => zstdCompressSync(projectTar({ more: FILES })),
      },
      'with more bytes than allowed': {
        code: 'archive_too_large',
        inputs: { 'max-extracted-bytes': '1100000' },
        zstd: () => zstdCompressSync(projectTar({ more: FILES })),
      },
      'whose compressed bytes are damaged after 10 MB': { code: 'invalid_archive', zstd: damagedLate },
      'that does not match its checksum': { code: 'invalid_archive', zstd: wrongChecksum },
      'whose second frame contains no tar': {
        code: 'invalid_archive',
        zstd: () => Buffer.concat([zstdCompressSync(projectTar({ more: FILES })), zstdCompressSync(Buffer.from('x'))]),
      },
    }
  for (const [name, { zstd, ...refused }] of sampled(Object.entries(late), 3)) {
    itRefuses(name, () => stage, {
      ...{ during: 'extracting', asked: TO_KEY, ...refused },
      offer: on => sealBytes(zstd(), on.signingKey),
    })
  }
})

describe('a project whose digest is wrong', () => {
  it('is refused before its files are written', async t => {
    const offer = sealTar(projectTar({ more: FILES }), stage.signingKey)
    // The signal would come with the first of these files.
    const result = await interrupt(await serveUntrustedProjectHub(t, answersOf(stage, offer)), 'SIGKILL')
    assert.equal(result.signal, null)
    assert.equal(readLocalReport(result).error?.code, 'content_mismatch', result.log)
  })
})

describe('a deployment that is interrupted while its files are written', () => {
  it('leaves no files when it is cancelled', async t => {
    const installed = listHost(stage.root)
    const hub = await serveUntrustedProjectHub(t, answersOf(stage, good()))
    const { error, outcome } = readLocalReport(await interrupt(hub, 'SIGINT'))
    assert.deepEqual([error?.code, outcome], ['cancelled', 'failed'])
    assertAsBefore(installed)
  })

  for (const finisher of ['its post step', 'a run that gets no further']) {
    it(`leaves no files when it is killed and ${finisher} finishes it`, async t => {
      const installed = listHost(stage.root)
      const answers = answersOf(stage, good())
      const hub = await serveUntrustedProjectHub(t, answers)
      const { signal, state } = await interrupt(hub, 'SIGKILL')
      assert.equal(signal, 'SIGKILL')
      const staged = Object.keys(listHost(stage.root)).filter(path => path.includes('/staging/'))
      const isThere = (file: string): boolean => staged.some(path => path.endsWith(`/plugins/cart/more/${file}`))
      assert.deepEqual([isThere('30'), isThere('59')], [true, false])
      answers.latest = answerJson(404, { error: 'no such project' })
      const isPost = finisher === 'its post step'
      await stage.deploy({ 'hub-url': hub.url }, isPost ? { phase: 'post', state } : {})
      assertAsBefore(installed)
    })
  }
})

/** A project that is large enough for its files to be written while it is read. */
function good(): SealedOffer {
  const files = filesOf(60_000).map(({ name, data }) => [name, String(data)])
  return sealTar(projectTar({ files: Object.fromEntries(files) }), stage.signingKey)
}

/** A tar in two frames. The first block of the second frame is damaged. */
function damagedLate(): Buffer {
  const tar = projectTar({ more: filesOf(200_000) })
  const frames = [tar.subarray(0, 10_500_000), tar.subarray(10_500_000)].map(part => zstdCompressSync(part))
  frames[1]?.fill(0xff, FRAME_HEADER_BYTES + 3, FRAME_HEADER_BYTES + 40)
  return Buffer.concat(frames)
}

function wrongChecksum(): Buffer {
  const params = { [constants.ZSTD_c_checksumFlag]: 1 }
  const zstd = zstdCompressSync(projectTar({ more: FILES }), { params })
  zstd.writeUInt8(zstd.readUInt8(zstd.length - 1) ^ 1, zstd.length - 1)
  return zstd
}

/** Deploys, and sends the signal as the process creates a file in the middle of the archive. */
async function interrupt(hub: UntrustedProjectHub, signal: NodeJS.Signals): Promise<ActionResult> {
  const env = { NODE_OPTIONS: `--import=${PRELOADED}`, SIGNAL: signal, AT_FILE: '/plugins/cart/more/30' }
  return await stage.deploy({ 'hub-url': hub.url }, { env })
}

function assertAsBefore(installed: ReturnType<typeof listHost>): void {
  assert.deepEqual(listHost(stage.root), installed)
  assertNothingStrays(stage.root)
  assertTemporariesGone(stage)
}
