import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it } from 'node:test'
import AdmZip from 'adm-zip'
import fc from 'fast-check'
import type { ExtractedTree } from '../../../src/install/files/extracted-tree.ts'
import { missingTools } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import { extractZip, inTemporaryDirectory, withVerifiedArtifact } from './artifacts.ts'

type Tree = Record<string, Uint8Array>

const LIMITS = { maxExtractedBytes: 20_000_000, maxEntries: 1000 }
const SOURCE_DATE = { GIT_COMMITTER_DATE: '2024-01-02T03:04:05Z', GIT_AUTHOR_DATE: '2024-01-02T03:04:05Z' }

/** Neither directories nor symlinks: zip does not compress them, and it writes only compressed entries into a pipe. */
const PIPED = ['README.md', 'src/run.sh', 'src/deep/large.bin']

const component = fc.oneof(fc.stringMatching(/^[a-z]{1,3}$/), fc.stringMatching(/^[a-zA-Z0-9 ._-]{0,12}[äö日😀]?z$/u))
const path = fc.array(component, { minLength: 1, maxLength: 4 }).map(components => components.join('/'))
const trees = fc.dictionary(path, fc.uint8Array({ maxLength: 3000 }), { minKeys: 2, maxKeys: 12 }).filter(isTree)

/** True if no path is also a parent of another path, and the tree has more than one top-level name. */
function isTree(tree: Tree): boolean {
  const paths = Object.keys(tree)
  const isParent = (one: string) => paths.some(other => other.startsWith(`${one}/`))
  return new Set(paths.map(one => one.split('/')[0])).size > 1 && !paths.some(isParent)
}

function writeSampleTree(root: string): void {
  mkdirSync(join(root, 'src/deep/er'), { recursive: true })
  mkdirSync(join(root, 'empty'))
  writeFileSync(join(root, 'README.md'), 'read me\n'.repeat(500))
  writeFileSync(join(root, 'src/run.sh'), '#!/bin/sh\n', { mode: 0o755 })
  writeFileSync(join(root, 'src/deep/er/nothing'), '')
  writeFileSync(join(root, 'src/deep/large.bin'), Buffer.alloc(2_000_000, 'abcdefghijklmnopqrstuvwxyz0123456789/n'))
  symlinkSync('src/run.sh', join(root, 'run'))
  symlinkSync('../..', join(root, 'src/deep/up'))
  writeFileSync(join(root, 'zeros'), Buffer.alloc(5_000_000))
  symlinkSync('deep/large.bin', join(root, 'src/libx.so.1'))
  symlinkSync('libx.so.1', join(root, 'src/libx.so'))
  symlinkSync('data/later', join(root, 'src/state'))
}

async function extractTo(directory: string, name: string, bytes: Buffer): Promise<ExtractedTree> {
  const target = join(directory, name)
  mkdirSync(target)
  return withVerifiedArtifact(bytes, directory, async artifact => {
    const tree = await extractZip(artifact, { target, limits: LIMITS })
    return { ...tree, files: [...tree.files] }
  })
}

function contentsOf(listing: Record<string, string>): Record<string, string> {
  const files = Object.entries(listing).filter(([, what]) => !what.endsWith(' directory'))
  return Object.fromEntries(files.map(([at, what]) => [at, what.slice(what.indexOf(' ') + 1)]))
}

describe('extractZip, compared with other tools', () => {
  it('restores every tree that adm-zip packed', async () => {
    await fc.assert(
      fc.asyncProperty(trees, async tree => {
        const zip = new AdmZip()
        for (const [at, content] of Object.entries(tree)) zip.addFile(at, Buffer.from(content))
        await inTemporaryDirectory(async directory => {
          await extractTo(directory, 'ours', zip.toBuffer())
          const expected = Object.entries(tree).map(([at, content]) => [at, Buffer.from(content).toString('latin1')])
          assert.deepEqual(contentsOf(listTree(join(directory, 'ours'))), Object.fromEntries(expected))
        })
      }),
      { numRuns: 60 },
    )
  })

  it('extracts the same files as unzip from an archive that zip wrote', {
    skip: missingTools('zip', 'unzip'),
  }, async () => {
    await inTemporaryDirectory(async directory => {
      writeSampleTree(join(directory, 'source'))
      execFileSync('zip', ['-qry', '../made.zip', '.'], { cwd: join(directory, 'source') })
      execFileSync('unzip', ['-q', 'made.zip', '-d', 'theirs'], { cwd: directory })
      await extractFile(directory, 'made.zip')
      assert.deepEqual(listTree(join(directory, 'ours')), listTree(join(directory, 'theirs')))
    })
  })

  it('reads an archive that zip wrote to a pipe, with data descriptors', { skip: missingTools('zip') }, async () => {
    await inTemporaryDirectory(async directory => {
      writeSampleTree(join(directory, 'source'))
      const options = { cwd: join(directory, 'source'), maxBuffer: 10_000_000 }
      const bytes = execFileSync('sh', ['-c', `zip -q - ${PIPED.join(' ')} | cat`], options)
      await extractTo(directory, 'ours', bytes)
      const extracted = listTree(join(directory, 'ours'))
      const original = listTree(join(directory, 'source'))
      const packed = Object.entries(original).filter(([at]) => PIPED.some(path => `${path}/`.startsWith(`${at}/`)))
      assert.deepEqual(extracted, Object.fromEntries(packed))
    })
  })

  it('reads an archive that git archive wrote, without its top-level directory', {
    skip: missingTools('git'),
  }, async () => {
    await inTemporaryDirectory(async directory => {
      const source = join(directory, 'source')
      writeSampleTree(source)
      const bytes = gitArchive(source)
      const tree = await extractTo(directory, 'ours', bytes)
      const { empty, ...expected } = listTree(source)
      assert.equal(empty, '755 directory')
      assert.equal(tree.flattened, 'project-1.0')
      assert.deepEqual(withoutGit(listTree(join(directory, 'ours'))), withoutGit(expected))
    })
  })

  it('reads an archive that Python wrote', { skip: missingTools('python3') }, async () => {
    await inTemporaryDirectory(async directory => {
      writeSampleTree(join(directory, 'source'))
      execFileSync('python3', ['-m', 'zipfile', '-c', 'made.zip', 'source/src/run.sh', 'source/README.md'], {
        cwd: directory,
      })
      await extractFile(directory, 'made.zip')
      assert.deepEqual(Object.keys(listTree(join(directory, 'ours'))).sort(), ['README.md', 'run.sh'])
    })
  })
})

async function extractFile(directory: string, name: string): Promise<ExtractedTree> {
  return extractTo(directory, 'ours', readFileSync(join(directory, name)))
}

function gitArchive(source: string): Buffer {
  const identity = ['-c', 'user.name=Test', '-c', 'user.email=test@example.invalid', '-c', 'commit.gpgsign=false']
  const git = (...args: string[]) =>
    execFileSync('git', [...identity, ...args], {
      cwd: source,
      maxBuffer: 10_000_000,
      env: { ...process.env, ...SOURCE_DATE, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CEILING_DIRECTORIES: dirname(source) },
    })
  git('init', '-q')
  git('add', '.')
  git('commit', '-qm', 'sample')
  return git('archive', '--format=zip', '--prefix=project-1.0/', 'HEAD')
}

function withoutGit(listing: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(listing).filter(([at]) => !/^\.git(\/|$)/.test(at)))
}
