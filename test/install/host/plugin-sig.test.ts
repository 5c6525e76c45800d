import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { ArtifactError } from '../../../src/core/errors.ts'
import { buildPluginSig, needsPluginSig } from '../../../src/install/host/plugin-sig.ts'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

interface Vector {
  name: string
  id: string
  secret: string
  files: Record<string, string>
  symlinks: Record<string, string>
  signature: string
}

/** Made by plugin-sig.py in the same folder. */
const VECTORS: Vector[] = JSON.parse(readFileSync(join(import.meta.dirname, '../../vectors/plugin-sig.json'), 'utf8'))

describe('buildPluginSig', () => {
  for (const { name, id, secret, files, symlinks, signature } of VECTORS) {
    it(`computes the known signature: ${name}`, async t => {
      const root = temporaryDirectory(t)
      writeTree(root, files)
      for (const [path, target] of Object.entries(symlinks)) symlinkSync(target, join(root, path))
      const pluginYaml = parsePluginYaml(files['plugin.yaml'] as string)
      assert.equal(await buildPluginSig({ id, staged: root, pluginYaml }, secret), signature)
    })
  }

  it('computes the same signature as openssl', async t => {
    const secret = 's\u00e9cret \u{1f511}'
    const files = { 'plugin.yaml': 'execution_mode: trusted\n', 'src/x.md': '# read', 'src/main.py': 'print(1)\n' }
    const signed = `${files['plugin.yaml']}src/main.py\0${files['src/main.py']}\0src/x.md\0${files['src/x.md']}\0`
    const key = Buffer.from(secret, 'utf8').toString('hex')
    const openssl = spawnSync('openssl', ['dgst', '-sha256', '-mac', 'HMAC', '-macopt', `hexkey:${key}`], {
      input: signed,
      encoding: 'utf8',
    })
    if (openssl.status !== 0) return t.skip(`openssl is not available: ${openssl.error ?? openssl.stderr}`)
    const root = temporaryDirectory(t)
    writeTree(root, files)
    const pluginYaml = parsePluginYaml(files['plugin.yaml'])
    const { digest } = JSON.parse(await buildPluginSig({ id: 'p', staged: root, pluginYaml }, secret))
    assert.equal(digest, openssl.stdout.trim().split('= ').at(-1))
  })

  for (const entryPoint of ['../main.py', '..', '/etc/x.py', 'src/../../x.py', 'src\\\\main.py', 'a\\0b/x.py']) {
    it(`refuses the entry point ${entryPoint}`, async t => {
      const root = temporaryDirectory(t)
      writeTree(root, { 'plugin.yaml': `entry_point: "${entryPoint}"\n` })
      const pluginYaml = parsePluginYaml(readFileSync(join(root, 'plugin.yaml'), 'utf8'))
      await assert.rejects(
        buildPluginSig({ id: 'p', staged: root, pluginYaml }, 's'),
        error => error instanceof ArtifactError && error.code === 'not_a_plugin',
      )
    })
  }
})

describe('needsPluginSig', () => {
  const modes = { trusted: true, Trusted: true, EPHEMERAL: true, sandboxed: false, 'trusted ': false } as const
  for (const [mode, needed] of Object.entries(modes)) {
    it(`${JSON.stringify(mode)}: ${needed}`, () => {
      assert.equal(needsPluginSig(parsePluginYaml(JSON.stringify({ execution_mode: mode }))), needed)
    })
  }

  it('is false without an execution mode', () => assert.ok(!needsPluginSig(parsePluginYaml('{}'))))
})
