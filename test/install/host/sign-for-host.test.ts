import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { signForHost } from '../../../src/install/host/sign-for-host.ts'
import { type CollectedLog, collectLog } from '../collected-log.ts'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

interface Scene {
  secret?: string | undefined
  entryPoint?: string
  mode?: string
  /** The artifact's files in addition to plugin.yaml and the entry point. */
  shipped?: Record<string, string>
  /** The files in the installed directory. */
  installed?: Record<string, string>
  keepPaths?: readonly string[]
}

async function sign(t: TestContext, scene: Scene) {
  const { secret } = { secret: 'a secret', ...scene }
  const { entryPoint = 'main.py', mode = 'trusted', shipped = {}, installed = {}, keepPaths = ['.env', 'data'] } = scene
  const [staged, place] = [temporaryDirectory(t), temporaryDirectory(t)]
  const text = `execution_mode: ${mode}\nentry_point: ${entryPoint}\n`
  writeTree(staged, { 'plugin.yaml': text, [entryPoint]: 'pass\n', ...shipped })
  writeTree(place, installed)
  const log: CollectedLog = collectLog()
  const tree = { files: [], symlinks: [] }
  const pluginYaml = parsePluginYaml(text)
  const plugin = { id: 'greeter', staged, tree, pluginYaml, installed: place, keepPaths, log }
  return { signed: await signForHost(plugin, secret), staged, place, log }
}

describe('signForHost', () => {
  it('adds the signature to the tree, replacing one that the artifact ships', async t => {
    const { signed, staged } = await sign(t, { shipped: { 'plugin.sig': 'forged' } })
    const text = readFileSync(join(staged, 'plugin.sig'), 'utf8')
    assert.equal(JSON.parse(text).plugin, 'greeter')
    const sha256 = createHash('sha256').update(text).digest('hex')
    assert.deepEqual(signed.files, [{ path: 'plugin.sig', size: text.length, mode: 0o644, sha256 }])
  })

  it('does not write through a symlink that the artifact ships as plugin.sig', async t => {
    const outside = join(temporaryDirectory(t), 'outside')
    writeTree(join(outside, '..'), { outside: 'untouched' })
    const staged = temporaryDirectory(t)
    writeTree(staged, { 'plugin.yaml': 'execution_mode: trusted\n', 'src/main.py': '' })
    symlinkSync(outside, join(staged, 'plugin.sig'))
    const plugin = { id: 'p', staged, tree: { files: [], symlinks: [] }, installed: '/nothing', keepPaths: [] }
    const pluginYaml = parsePluginYaml('execution_mode: trusted\n')
    await signForHost({ ...plugin, pluginYaml, log: collectLog() }, 'a secret')
    assert.equal(readFileSync(outside, 'utf8'), 'untouched')
  })

  for (const [mode, warnings] of [
    ['trusted', 1],
    ['Ephemeral', 1],
    ['sandboxed', 0],
  ] as const) {
    it(`${warnings === 0 ? 'does not warn' : 'warns'} if there is no secret for a plugin in execution mode ${mode}`, async t => {
      const { signed, staged, log } = await sign(t, { mode, secret: undefined, installed: { '.env': '' } })
      assert.deepEqual([signed, existsSync(join(staged, 'plugin.sig'))], [{ files: [], symlinks: [] }, false])
      assert.equal(log.lines.length, warnings)
      assert.ok(log.lines.every(line => line.startsWith('warning ') && line.includes('plugin-secret-key')))
    })
  }

  it('leaves a plugin that needs no signature alone, and logs nothing', async t => {
    const { signed, log } = await sign(t, { mode: 'sandboxed', installed: { 'data/x': '1' } })
    assert.deepEqual([signed, log.lines], [{ files: [], symlinks: [] }, []])
  })
})

describe('signForHost with keep-paths', () => {
  const rows: [string, Scene, string[]][] = [
    ['of files that the host has there', { installed: { '.env': 'A=1', 'data/x': '1' } }, ['.env', 'data']],
    ['of files that the artifact ships there', { shipped: { 'data/x': '1' } }, ['data']],
    [
      'of nothing outside the directory of the entry point',
      { entryPoint: 'src/main.py', installed: { '.env': 'A=1', 'data/x': '1' } },
      [],
    ],
    ['of nothing that does not exist', {}, []],
    [
      'of a path in the directory of the entry point',
      { entryPoint: 'src/main.py', keepPaths: ['src/data', 'source'], installed: { 'src/data/x': '', 'source/x': '' } },
      ['src/data'],
    ],
    [
      'of a path that contains the directory of the entry point',
      { entryPoint: 'src/app/main.py', keepPaths: ['src'], installed: { 'src/x': '' } },
      ['src'],
    ],
    ['of nothing that the signature does not cover', { keepPaths: ['.git'], installed: { '.git/x': '' } }, []],
  ]
  for (const [name, scene, warned] of rows) {
    it(`warns ${name}: ${warned.join(', ') || 'none'}`, async t => {
      const { log } = await sign(t, scene)
      assert.equal(log.lines.length, warned.length === 0 ? 0 : 1)
      if (warned.length > 0)
        assert.ok(log.lines[0]?.startsWith('warning ') && log.lines[0].includes(` (${warned.join(', ')}), `))
    })
  }
})
