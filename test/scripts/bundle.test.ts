import assert from 'node:assert/strict'
import { isAscii } from 'node:buffer'
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'

const ROOT = join(import.meta.dirname, '../..')
const BUNDLE = join(ROOT, 'dist/index.js')

interface Lockfile {
  packages: Record<string, { version?: string; integrity?: string; link?: boolean }>
}

describe('the bundle', () => {
  it('contains the replacement for undici and no code of undici itself', () => {
    const bundle = readFileSync(BUNDLE, 'utf8')
    assert.match(bundle, /MODULE: \.\/build\/node_modules\/undici\/index\.js/)
    assert.doesNotMatch(bundle, /UND_ERR_/)
  })

  it('is ASCII, for which V8 needs one byte per character', () => {
    assert.ok(isAscii(readFileSync(BUNDLE)))
  })

  it('contains no generator of JSON Schemas', () => {
    assert.doesNotMatch(readFileSync(BUNDLE, 'utf8'), /json-schema\.org/)
  })

  it('lists the licenses of all packages that it contains, but not the license of undici', () => {
    const packages = readFileSync(join(ROOT, 'dist/licenses.txt'), 'utf8').match(/^(?:@\w+\/)?[a-z][a-z-]*$/gm)
    const expected = ['@actions/core', '@actions/http-client']
    assert.deepEqual(packages, [...expected, 'semver', 'tunnel', 'yaml', 'zod'])
  })

  it('is loaded by a program that needs only little of Node.js', () => {
    const loaded = readFileSync(join(ROOT, 'dist/start.js'), 'utf8').matchAll(/\brequire\("([^"]+)"\)/g)
    const expected = ['node:crypto', 'node:fs', 'node:path', 'node:vm']
    assert.deepEqual([...loaded].map(([, name]) => name).sort(), expected)
  })

  it('starts without the slow modules of Node.js that no run needs', () => {
    // The bundle has no action with the name `none`.
    const program = `try {
        require(${JSON.stringify(join(ROOT, 'dist/start.js'))}).start(${JSON.stringify(join(ROOT, 'dist'))}, 'none')
      } catch ({ message }) {
        if (message === 'The bundle has no action none.') console.log(JSON.stringify(process.moduleLoadList))
      }`
    const loaded: string[] = JSON.parse(execFileSync(process.execPath, ['--eval', program], { encoding: 'utf8' }))
    const unneeded = /undici|perf_hooks|internal\/fs\/promises|readline|NativeModule (assert|worker_threads)$/
    assert.deepEqual(
      loaded.filter(name => unneeded.test(name)),
      [],
    )
  })
})

describe('package-lock.json', () => {
  it('names every package that is installed, so that npm audit checks it', () => {
    const { packages }: Lockfile = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
    assert.match(packages['node_modules/undici']?.version ?? '', /^6\./)
    const unaudited = Object.entries(packages).filter(
      ([path, { link, integrity }]) => path !== '' && (link || !integrity),
    )
    assert.deepEqual(unaudited, [])
  })
})
