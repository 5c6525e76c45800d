import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { temporaryDirectory } from '../install/temporary-directory.ts'

const DIST = join(import.meta.dirname, '../../dist')
const ENTRIES = readdirSync(DIST).filter(name => name.endsWith('.js') && name !== 'index.js')

/** Runs an entry of `dist/` with a bundle of its own, on a Node.js that says it is of this version. */
function runEntry(t: TestContext, entry: string, { version, bundle }: { version: string; bundle: string }) {
  const folder = temporaryDirectory(t)
  for (const name of [entry, 'package.json']) copyFileSync(join(DIST, name), join(folder, name))
  writeFileSync(join(folder, 'index.js'), bundle)
  const versions = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`
  const args = ['--import', `data:text/javascript,${encodeURIComponent(versions)}`, join(folder, entry)]
  return spawnSync(process.execPath, args, { encoding: 'utf8' })
}

describe('the entries of dist/', () => {
  assert.ok(ENTRIES.includes('recover.js') && ENTRIES.includes('deploy.js'))
  for (const entry of ENTRIES) {
    it(`${entry} says in one sentence which Node.js it needs, before it loads anything`, t => {
      for (const version of ['12.22.9', '20.20.2']) {
        const { status, stdout, stderr } = runEntry(t, entry, { version, bundle: 'console.log("loaded")' })
        assert.deepEqual([status, stdout], [1, ''])
        assert.match(stderr, /^Error: .*\n$/)
        assert.ok(
          stderr.startsWith(`Error: ${entry} needs Node.js 24, but ${process.execPath} is ${version}: `),
          stderr,
        )
      }
    })

    it(`${entry} has nothing that Node.js 12 cannot parse`, () => {
      assert.doesNotMatch(readFileSync(join(DIST, entry), 'utf8'), /\bawait\b|\?\.|\?\?|&&=|\|\|=|\d_\d|#/)
    })
  }

  it('need the Node.js that the actions run on', () => {
    for (const action of ['action.yml', 'project/action.yml', 'rollback/action.yml']) {
      assert.match(readFileSync(join(DIST, '..', action), 'utf8'), /using: node24$/m)
    }
  })

  it('are no success when what they run never ends, or fails', t => {
    const run = (body: string) =>
      runEntry(t, 'recover.js', { version: '24.0.0', bundle: `export const recover = async () => { ${body} }` }).status
    const statuses = ['', 'process.exitCode = 75', 'await new Promise(() => {})', 'throw new Error("no")'].map(run)
    assert.deepEqual(statuses, [0, 75, 13, 1])
  })
})
