import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parsePluginYaml } from '../src/core/content/plugin-yaml.ts'

const PLUGIN = join(import.meta.dirname, '../examples/plugin')
/** Loads an entry point by its path, as a host framework does, and handles one event. */
const HOST = `
import asyncio, importlib.util, sys
spec = importlib.util.spec_from_file_location("plugins.greeter", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(asyncio.run(module.Plugin().handle("greet", {"name": "Ada"}))["text"])
`

describe('the example plugin', () => {
  it('is trusted, and a host that loads its entry point finds its class Plugin', t => {
    const { executionMode, entryPoint } = parsePluginYaml(readFileSync(join(PLUGIN, 'plugin.yaml'), 'utf8'))
    assert.equal(executionMode, 'trusted')
    const args = ['-I', '-B', '-c', HOST, join(PLUGIN, entryPoint ?? '')]
    const host = spawnSync('python3', args, { encoding: 'utf8', cwd: '/' })
    if (host.error !== undefined) return t.skip('python3 is not on PATH')
    assert.deepEqual([host.status, host.stdout, host.stderr], [0, 'Hello, Ada!\n', ''])
  })
})
