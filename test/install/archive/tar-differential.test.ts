import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import fc from 'fast-check'
import { pack } from 'tar-stream'
import { missingTools, sampled } from '../../extent.ts'
import { listTree, temporaryDirectory } from '../../folders.ts'
import { extractTar, openedTar, openedZstd } from './artifacts.ts'

const LIMITS = { maxExtractedBytes: 100_000_000, maxEntries: 1000 }
const LONG = `${'long-'.repeat(25)}/${'ünï-'.repeat(20)}`
/** A name whose hundredth byte, the last one that fits into a header's name field, is a slash. */
const CUT_AT_SLASH = `${'a'.repeat(49)}/${'b'.repeat(49)}/file`

function writeSampleTree(root: string, withLongNames: boolean): void {
  mkdirSync(join(root, 'plugins/one/src'), { recursive: true })
  mkdirSync(join(root, 'empty'))
  writeFileSync(join(root, 'manifest.json'), '{}')
  writeFileSync(join(root, 'plugins/one/run.sh'), '#!/bin/sh\n')
  chmodSync(join(root, 'plugins/one/run.sh'), 0o755)
  writeFileSync(join(root, 'plugins/one/src/nothing'), '')
  writeFileSync(join(root, 'plugins/one/src/large.bin'), createHash('shake128', { outputLength: 1_500_000 }).digest())
  symlinkSync('../run.sh', join(root, 'plugins/one/src/run'))
  writeFileSync(join(root, 'plugins/one/zeros'), Buffer.alloc(5_000_000))
  symlinkSync('src/large.bin', join(root, 'plugins/one/libx.so.1'))
  symlinkSync('libx.so.1', join(root, 'plugins/one/libx.so'))
  symlinkSync('data/later', join(root, 'plugins/one/state'))
  if (!withLongNames) return
  for (const path of [LONG, CUT_AT_SLASH]) {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), 'long')
  }
  symlinkSync(LONG, join(root, 'to-long'))
}

interface Sample {
  readonly directory: string
  readonly source: string
  readonly target: string
}

function makeSample(t: TestContext, withLongNames = true): Sample {
  const directory = temporaryDirectory(t)
  const [source, target] = [join(directory, 'source'), join(directory, 'target')]
  mkdirSync(source)
  mkdirSync(target)
  writeSampleTree(source, withLongNames)
  // Extraction does not depend on the umask, so the sample must not either.
  execFileSync('chmod', ['-R', 'u=rwX,go=rX', source])
  return { directory, source, target }
}

async function compare({ source, target }: Sample, tar: Buffer): Promise<void> {
  await extractTar(await openedTar(tar), { target, limits: LIMITS })
  assert.deepEqual(listTree(target), listTree(source))
}

/** Runs a command line in the sample's folder, and returns its standard output. */
function shell({ directory }: Sample, line: string): Buffer {
  return execFileSync('sh', ['-c', line, 'sh', directory], { cwd: directory, maxBuffer: 100_000_000 })
}

const tools: { name: string; needs: string[]; line: string; shortNames?: true }[] = [
  { name: 'tar --format=gnu', needs: ['tar'], line: 'tar --format=gnu -C source -cf - .' },
  { name: 'tar --format=pax', needs: ['tar'], line: 'tar --format=pax -C source -cf - .' },
  { name: 'tar --format=ustar', needs: ['tar'], line: 'tar --format=ustar -C source -cf - .', shortNames: true },
  { name: 'tar --format=v7', needs: ['tar'], line: 'tar --format=v7 -C source -cf - .', shortNames: true },
  { name: 'tar --format=oldgnu', needs: ['tar'], line: 'tar --format=oldgnu -C source -cf - .' },
  { name: 'tar without ./', needs: ['tar'], line: 'cd source && tar -cf - *' },
  { name: 'bsdtar', needs: ['bsdtar'], line: 'bsdtar -C source -cf - .' },
  { name: 'bsdtar --format=pax', needs: ['bsdtar'], line: 'bsdtar --format=pax -C source -cf - .' },
  { name: 'git archive', needs: ['git'], line: gitTar() },
  {
    name: 'tar with global PAX times',
    needs: ['tar'],
    line: 'tar --format=pax --pax-option=globexthdr.mtime=1 -C source -cf - .',
  },
  { name: 'Python, PAX', needs: ['python3'], line: pythonTar('PAX_FORMAT') },
  { name: 'Python, GNU', needs: ['python3'], line: pythonTar('GNU_FORMAT') },
  { name: 'Python, ustar', needs: ['python3'], line: pythonTar('USTAR_FORMAT'), shortNames: true },
]

function pythonTar(format: string): string {
  const open = `tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.${format})`
  return `python3 -c 'import sys, tarfile; tar = ${open}; tar.add("source", "."); tar.close()'`
}

/** Returns a command line that writes a tar whose global header has the commit as a comment. */
function gitTar(): string {
  const git = 'git -C source -c user.name=Test -c user.email=test@example.invalid -c commit.gpgsign=false'
  return `rmdir source/empty && git init -q source && ${git} add . && ${git} commit -qm sample && git -C source archive HEAD && rm -rf source/.git`
}

const compressors: { name: string; needs: string[]; line: string }[] = [
  { name: 'zstd', needs: ['zstd'], line: 'zstd -q -c made.tar' },
  { name: 'zstd --no-content-size', needs: ['zstd'], line: 'zstd -q -c --no-content-size made.tar' },
  { name: 'zstd from a pipe', needs: ['zstd'], line: 'cat made.tar | zstd -q -c' },
  { name: 'zstd -19 --long=27 from a pipe', needs: ['zstd'], line: 'cat made.tar | zstd -q -c -19 --long=27' },
  { name: 'zstd --ultra -22', needs: ['zstd'], line: 'zstd -q -c --ultra -22 made.tar' },
  { name: 'zstd --no-check', needs: ['zstd'], line: 'zstd -q -c --no-check made.tar' },
  { name: 'zstd --fast', needs: ['zstd'], line: 'zstd -q -c --fast made.tar' },
  { name: 'pzstd', needs: ['pzstd'], line: 'pzstd -q -c -p 2 made.tar' },
  {
    name: 'zstd, a frame for each part',
    needs: ['zstd', 'split'],
    line: 'split -b 300000 made.tar part. && for part in part.*; do zstd -q -c "$part"; done',
  },
]

describe('extractTar, compared with other tools', () => {
  for (const { name, needs, line, shortNames } of sampled(tools, 2)) {
    it(`restores a tree that ${name} packed`, { skip: missingTools(...needs) }, async t => {
      const sample = makeSample(t, shortNames === undefined)
      await compare(sample, shell(sample, line))
    })
  }

  for (const { name, needs, line } of sampled(compressors, 1)) {
    it(`restores a tree that ${name} compressed`, { skip: missingTools('tar', ...needs) }, async t => {
      const sample = makeSample(t)
      writeFileSync(join(sample.directory, 'made.tar'), shell(sample, 'tar -C source -cf - .'))
      await extractTar(await openedZstd(shell(sample, line)), { target: sample.target, limits: LIMITS })
      assert.deepEqual(listTree(sample.target), listTree(sample.source))
    })
  }

  it('refuses a window of 256 MiB', { skip: missingTools('tar', 'zstd') }, async t => {
    const sample = makeSample(t)
    const zstd = shell(sample, 'tar -C source -cf - . | zstd -q -c --long=28')
    await assert.rejects(extractTar(await openedZstd(zstd), { target: sample.target, limits: LIMITS }), {
      code: 'archive_too_large',
    })
  })

  it('refuses a file that GNU tar stores as sparse', { skip: missingTools('tar', 'truncate') }, async t => {
    for (const format of ['gnu', 'pax']) {
      const sample = makeSample(t)
      const tar = shell(sample, `truncate -s 10M source/holes && tar --sparse --format=${format} -C source -cf - .`)
      await assert.rejects(extractTar(await openedTar(tar), { target: sample.target, limits: LIMITS }), {
        code: 'unsafe_archive',
      })
    }
  })

  it('refuses a hard link that GNU tar stored', { skip: missingTools('tar', 'ln') }, async t => {
    const sample = makeSample(t)
    const tar = shell(sample, 'ln source/manifest.json source/another && tar -C source -cf - .')
    await assert.rejects(extractTar(await openedTar(tar), { target: sample.target, limits: LIMITS }), {
      code: 'unsafe_archive',
    })
  })

  it('restores every tree that tar-stream packed', async t => {
    const component = fc.stringMatching(/^[a-zA-Z0-9 ._-]{0,60}[äö日😀]{0,9}z$/u)
    const path = fc.array(component, { minLength: 1, maxLength: 4 }).map(components => components.join('/'))
    const trees = fc.dictionary(path, fc.uint8Array({ maxLength: 2000 }), {
      minKeys: 1,
      maxKeys: 8,
      noNullPrototype: true,
    })
    const isTree = (tree: object) =>
      !Object.keys(tree).some(one => Object.keys(tree).some(other => other.startsWith(`${one}/`)))
    const directory = temporaryDirectory(t)
    let run = 0
    await fc.assert(
      fc.asyncProperty(trees.filter(isTree), async tree => {
        const target = join(directory, `${run++}`)
        mkdirSync(target)
        const { files } = await extractTar(await openedTar(await packed(tree)), { target, limits: LIMITS })
        assert.deepEqual(files.map(file => file.path).toSorted(), Object.keys(tree).toSorted())
        for (const { path } of files) assert.deepEqual(new Uint8Array(readFileSync(join(target, path))), tree[path])
      }),
      { numRuns: 50 },
    )
  })
})

async function packed(tree: Record<string, Uint8Array>): Promise<Buffer> {
  const tar = pack()
  for (const [name, content] of Object.entries(tree)) tar.entry({ name }, Buffer.from(content))
  tar.finalize()
  const pieces: Buffer[] = []
  for await (const piece of tar as AsyncIterable<Buffer>) pieces.push(piece)
  return Buffer.concat(pieces)
}
