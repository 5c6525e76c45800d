import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { UsageError } from '../../../hub/errors.ts'
import { readPart } from '../../../scripts/try/part.ts'
import { ArtifactError } from '../../../src/core/errors.ts'
import { temporaryDirectory, writeTree } from '../../install/temporary-directory.ts'

const EXAMPLES = join(import.meta.dirname, '../../../examples')

describe('the part in a folder', () => {
  it('is a plugin with the name and version of its plugin.yaml', () => {
    const folder = join(EXAMPLES, 'plugin')
    const expected = { folder, kind: 'plugin', slug: 'greeter', version: '1.0.0', isSigned: true }
    assert.deepEqual(readPart(folder, {}), expected)
    assert.deepEqual(readPart(folder, { slug: 'hello', version: '1.0.0' }), { ...expected, slug: 'hello' })
  })

  it('is a service if it has no plugin.yaml and a program at its top', () => {
    const folder = join(EXAMPLES, 'service')
    const expected = { folder, kind: 'service', slug: 'service', version: '1.0.0', isSigned: false }
    assert.deepEqual(readPart(folder, {}), expected)
    const given = { slug: 'clock', version: '2.0.0' }
    assert.deepEqual(readPart(folder, given), { ...expected, ...given })
  })

  it('has a slug, whatever its name', t => {
    const folder = join(temporaryDirectory(t), 'My Plugin!')
    const slugFor = (name: string): string => {
      writeTree(folder, { 'plugin.yaml': `${name}version: "1"\n` })
      return readPart(folder, {}).slug
    }
    assert.equal(slugFor(''), 'my-plugin')
    assert.equal(slugFor('name: ".. Ünïcode_Plugin v2"\n'), 'n-code_plugin-v2')
    assert.throws(() => slugFor('name: "插件"\n'), UsageError)
  })

  const refused: Readonly<Record<string, [Readonly<Record<string, string>>, RegExp]>> = {
    'is no plugin and has no program': [
      { 'a.txt': '' },
      /has no plugin\.yaml: add one with the lines "name: .*--kind service/,
    ],
    'spells plugin.yaml in another way': [{ 'plugin.yml': '' }, /plugin\.yml must be named plugin\.yaml/],
    'has no version': [
      { 'plugin.yaml': 'name: a\n' },
      /plugin\.yaml has no version: add the line 'version: "1\.0\.0"'/,
    ],
    'has wrong YAML': [
      { 'plugin.yaml': 'name: a\nversion: [1\n' },
      /plugin\.yaml:3 is not valid YAML \(.*\): correct it/,
    ],
    'has a version of another type': [{ 'plugin.yaml': 'version: [1]\n' }, /plugin\.yaml has an unexpected version/],
    'has an oversized plugin.yaml': [{ 'plugin.yaml': `#${'x'.repeat(40_000)}\n` }, /must be at most 32768 bytes/],
  }
  for (const [what, [files, message]] of Object.entries(refused)) {
    it(`is refused in one sentence if it ${what}`, t => {
      const folder = temporaryDirectory(t)
      writeTree(folder, files)
      assert.throws(() => readPart(folder, {}), expectSentence(ArtifactError, message))
    })
  }

  it('is refused if its plugin.yaml is a folder or leads elsewhere', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { 'secret.yaml': 'name: secret\nversion: "1"\n', 'b/a': '' })
    symlinkSync('../secret.yaml', join(folder, 'b/plugin.yaml'))
    mkdirSync(join(folder, 'c/plugin.yaml'), { recursive: true })
    for (const name of ['b', 'c'])
      assert.throws(
        () => readPart(join(folder, name), {}),
        expectSentence(ArtifactError, /must be a file in this folder/),
      )
  })

  it('is refused for a project, which the message sends to its page', () => {
    const folder = join(EXAMPLES, 'project')
    assert.throws(
      () => readPart(folder, {}),
      expectSentence(UsageError, /is a project, .*: see "Try it" in docs\/projects\.md/),
    )
  })

  it('is refused for options that do not fit it', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { run: '' })
    chmodSync(join(folder, 'run'), 0o755)
    for (const [given, message] of [
      [{ kind: 'app' }, /--kind must be plugin or service/],
      [{ slug: '../up' }, /--slug must be/],
    ] as const)
      assert.throws(() => readPart(folder, given), expectSentence(UsageError, message))
    const changed = { version: '2.0.0' }
    assert.throws(() => readPart(join(EXAMPLES, 'plugin'), changed), expectSentence(UsageError, /says version 1\.0\.0/))
    assert.throws(() => readPart(join(folder, 'none'), {}), expectSentence(UsageError, /There is no folder/))
  })
})

function expectSentence(type: typeof ArtifactError | typeof UsageError, message: RegExp) {
  return (error: unknown): boolean => {
    assert.ok(error instanceof type, String(error))
    assert.match(error.message, message)
    assert.match(error.message, /^[^\n]+\.$/)
    return true
  }
}
