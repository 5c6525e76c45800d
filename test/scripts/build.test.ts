import assert from 'node:assert/strict'
import { isAscii } from 'node:buffer'
import { execFileSync, spawnSync } from 'node:child_process'
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import { temporaryDirectory } from '../folders.ts'

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

  it('is loaded by a program of a few kilobytes, which contains no package', () => {
    const start = readFileSync(join(ROOT, 'dist/start.js'), 'utf8')
    assert.doesNotMatch(start, /MODULE: \.\/node_modules/)
    assert.ok(start.length < 32 * 1024, `${start.length} bytes`)
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

const DIST = join(import.meta.dirname, '../../dist')
const ENTRIES = readdirSync(DIST).filter(name => name.endsWith('.js') && !['index.js', 'start.js'].includes(name))

interface EntryRun {
  readonly version: string
  readonly bundle: string
  readonly args?: readonly string[]
}

/** Runs an entry of `dist/` with a bundle of this code, on a Node.js that claims to be of this version. */
function runEntry(t: TestContext, entry: string, { version, bundle, args: given = [] }: EntryRun) {
  const folder = temporaryDirectory(t)
  for (const name of [entry, 'start.js', 'package.json']) copyFileSync(join(DIST, name), join(folder, name))
  writeFileSync(join(folder, 'index.js'), `(function (module, exports) {${bundle}\n})`)
  const versions = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })`
  const args = ['--import', `data:text/javascript,${encodeURIComponent(versions)}`, join(folder, entry), ...given]
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
        assert.match(
          stderr,
          /externals\/node24\/bin\/node of the runner, or node_modules\/\.bin\/node of a checkout\.\n$/,
        )
      }
    })

    it(`${entry} has nothing that Node.js 12 cannot parse`, () => {
      assert.doesNotMatch(readFileSync(join(DIST, entry), 'utf8'), /\bawait\b|\?\.|\?\?|&&=|\|\|=|\d_\d|#/)
    })
  }

  it('explain themselves in a terminal before they load anything, except for recover.js, which the bundle explains', t => {
    const bundle = 'exports.recover = async () => console.log(process.argv[2])'
    for (const entry of ENTRIES) {
      for (const option of ['--help', '-h']) {
        const { status, stdout, stderr } = runEntry(t, entry, { version: '24.0.0', bundle, args: [option] })
        assert.deepEqual([status, stderr], [0, ''], entry)
        const isOwn = stdout.startsWith(`${entry} is the `) && /INPUT_|this depends on the other inputs/.test(stdout)
        assert.ok(entry === 'recover.js' ? stdout === `${option}\n` : isOwn, stdout)
      }
    }
  })

  it('name the inputs that their action requires', t => {
    const { stdout } = runEntry(t, 'deploy.js', { version: '24.0.0', bundle: '', args: ['--help'] })
    const { inputs } = parse(readFileSync(join(DIST, '../action.yml'), 'utf8'))
    const required = Object.keys(inputs).filter(name => inputs[name].required)
    const named = [...stdout.matchAll(/INPUT_([A-Z-]+)/g)].map(([, name]) => name?.toLowerCase())
    assert.deepEqual(named, required)
    assert.match(stdout, /npm run try -- --from /)
  })

  it('need the Node.js that the actions run on', () => {
    for (const action of ['action.yml', 'project/action.yml', 'rollback/action.yml']) {
      assert.match(readFileSync(join(DIST, '..', action), 'utf8'), /using: node24$/m)
    }
  })

  it('fail when the bundle never ends, or fails', t => {
    const run = (body: string) =>
      runEntry(t, 'recover.js', { version: '24.0.0', bundle: `exports.recover = async () => { ${body} }` }).status
    const statuses = ['', 'process.exitCode = 75', 'await new Promise(() => {})', 'throw new Error("no")'].map(run)
    assert.deepEqual(statuses, [0, 75, 13, 1])
  })
})
