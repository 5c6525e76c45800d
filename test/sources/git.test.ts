import assert from 'node:assert/strict'
import { readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { sampled } from '../extent.ts'
import { whyNoGitServer } from './git-server.ts'
import { type GitStage, namesIn, openGitStage } from './git-stage.ts'

const skip = whyNoGitServer() ?? false

describe('a part from git', { skip }, () => {
  let stage: GitStage
  before(async () => {
    stage = await openGitStage()
  })
  after(() => stage.close())

  it('is the tree of the commit, byte by byte, with symlinks and modes', async () => {
    const files = { 'plugin.yaml': 'name: x\n', 'src/main.py': '+x print()\r\n', 'src/link': '->main.py' }
    const ref = stage.repository('plain').commit(files)
    const { staged, tree, commit } = await stage.fetch({ url: `${stage.server.url}/plain`, ref })
    assert.equal(commit, ref)
    assert.deepEqual(namesIn(staged), ['plugin.yaml', 'src', 'src/link', 'src/main.py'])
    assert.equal(readlinkSync(join(staged, 'src/link')), 'main.py')
    assert.deepEqual(
      tree.files.map(({ path, mode, size }) => [path, mode, size]),
      [
        ['plugin.yaml', 0o644, 8],
        ['src/main.py', 0o755, 9],
      ],
    )
    assert.deepEqual(
      namesIn(join(staged, '..')).filter(name => !name.startsWith('tree')),
      [],
    )
  })

  it('may be one directory of the tree', async () => {
    const ref = stage.repository('mono').commit({ 'parts/pay/a.py': 'a', 'parts/pay/b/c.py': 'c', 'parts/x': 'x' })
    const { staged } = await stage.fetch({ url: `${stage.server.url}/mono`, ref, subdirectory: 'parts/pay' })
    assert.deepEqual(namesIn(staged), ['a.py', 'b', 'b/c.py'])
  })

  it('may be the current commit of a branch or a tag', async () => {
    const repository = stage.repository('named')
    const commit = repository.commit({ a: '1' }, 'main')
    repository.git(['tag', '-a', '-m', 'one', 'v1', commit])
    repository.commit({ a: '2' }, 'next/2')
    const url = `${stage.server.url}/named`
    assert.equal((await stage.fetch({ url, ref: 'v1' })).commit, commit)
    const { staged } = await stage.fetch({ url, ref: 'next/2' })
    assert.equal(readFileSync(join(staged, 'a'), 'utf8'), '2')
  })

  it('is refused at a branch or tag if the digest would not cover the whole tree, and the message has the commit id', async () => {
    const url = `${stage.server.url}/uncovered`
    const repository = stage.repository('uncovered')
    const trees = {
      'the symlink link': { 'a/b': '1', link: '->a' },
      'the symlink gone': { a: '1', gone: '->nothing' },
      'the mode of run, which is executable': { run: '+x 1' },
    }
    for (const [found, files] of sampled(Object.entries(trees), 2)) {
      const commit = repository.commit(files)
      const { code, message } = await stage.refusal({ url, ref: 'main' })
      assert.equal(code, 'unpinned_source')
      assert.ok(message.includes(found) && message.includes(commit), message)
      assert.equal((await stage.fetch({ url, ref: commit })).commit, commit)
    }
    repository.commit({ a: '1', link: '->a' })
    assert.equal((await stage.fetch({ url, ref: 'main' })).tree.symlinks.length, 1)
  })

  it('may come from a repository with SHA-256 ids', async () => {
    const ref = stage.repository('long', 'sha256').commit({ a: '1' })
    assert.equal(ref.length, 64)
    assert.equal((await stage.fetch({ url: `${stage.server.url}/long`, ref })).commit, ref)
  })

  it('is fetched without its history', async () => {
    const repository = stage.repository('deep')
    repository.commit({ old: Buffer.alloc(3_000_000, 'x').toString() })
    const parent = repository.git(['rev-parse', 'main'])
    const tree = repository.git(['mktree'], `100644 blob ${repository.blob('new')}\tnew\n`)
    const ref = repository.git(['commit-tree', tree, '-p', parent, '-m', 'new'])
    repository.git(['update-ref', 'refs/heads/main', ref])
    const request = { maxArtifactBytes: 100_000 }
    const { staged } = await stage.fetch({ url: `${stage.server.url}/deep`, ref }, { request })
    assert.deepEqual(namesIn(staged), ['new'])
  })

  it('is fetched from the approved addresses, and from no others of its name', async () => {
    const ref = stage.repository('pinned').commit({ a: '1' })
    const url = stage.server.url.replace('127.0.0.1', 'hub.test')
    const resolve = ((_name: string, _options: object, callback: (error: null, found: object[]) => void) =>
      callback(null, [{ address: '127.0.0.1', family: 4 }])) as never
    const options = { request: { hubUrl: url }, wire: { addresses: { resolve } } }
    assert.equal((await stage.fetch({ url: `${url}/pinned`, ref }, options)).commit, ref)
    const elsewhere = { ...options, request: { hubUrl: 'https://203.0.113.1' } }
    stage.server.requests.length = 0
    assert.equal((await stage.refusal({ url: `${url}/pinned`, ref }, elsewhere)).code, 'insecure_url')
    const literal = await stage.refusal({ url: `${stage.server.url}/pinned`, ref }, elsewhere)
    assert.equal(literal.code, 'insecure_url')
    assert.equal(stage.server.requests.length, 0)
  })

  it('is refused without trust in the server', async () => {
    const ref = stage.repository('untrusted').commit({ a: '1' })
    const { code } = await stage.refusal({ url: `${stage.server.url}/untrusted`, ref }, { request: { ca: undefined } })
    assert.equal(code, 'network')
  })

  it('is refused if it does not match the manifest', async () => {
    const repository = stage.repository('there')
    const ref = repository.commit({ 'a/b': '1', link: '->a' })
    const url = `${stage.server.url}/there`
    assert.equal((await stage.refusal({ url: `${stage.server.url}/absent`, ref })).code, 'not_found')
    assert.equal((await stage.refusal({ url, ref: 'absent' })).code, 'not_found')
    assert.equal((await stage.refusal({ url, ref: 'a1'.repeat(20) })).code, 'not_found')
    const tree = repository.git(['rev-parse', `${ref}^{tree}`])
    assert.match((await stage.refusal({ url, ref: tree })).code, /^(?:bad_response|not_found)$/)
    for (const subdirectory of sampled(['absent', 'a/b', 'A', 'link'], 2))
      assert.equal((await stage.refusal({ url, ref, subdirectory })).code, 'invalid_manifest', subdirectory)
  })
})
