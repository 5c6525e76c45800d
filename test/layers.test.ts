import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, describe, it } from 'node:test'

const ROOT = join(import.meta.dirname, '..')
const RESTRICTED = 'lint/style/noRestrictedImports'
const CYCLE = 'lint/suspicious/noImportCycles'

/** One file for each row: what it imports, and the rule that must refuse it. */
const imports: { file: string; from: string; rule: string | undefined }[] = [
  ...[
    '../net/x.ts',
    '../install/x.ts',
    '../marketplace/x.ts',
    '../project/x.ts',
    '../actions/x.ts',
    '../../hub/x.ts',
  ].map((from, i) => ({ file: `src/core/up-${i}.ts`, from, rule: RESTRICTED })),
  ...[
    'node:fs',
    'node:fs/promises',
    'node:http',
    'node:https',
    'node:net',
    'node:os',
    'node:child_process',
    '@actions/core',
    '@actions/http-client',
  ].map((from, i) => ({ file: `src/core/impure-${i}.ts`, from, rule: RESTRICTED })),
  ...[
    '../install/x.ts',
    '../marketplace/x.ts',
    '../project/x.ts',
    '../actions/x.ts',
    '../../hub/x.ts',
    '@actions/core',
  ].map((from, i) => ({ file: `src/net/up-${i}.ts`, from, rule: RESTRICTED })),
  ...[
    '../marketplace/x.ts',
    '../project/x.ts',
    '../actions/x.ts',
    '../../hub/x.ts',
    '@actions/core',
    '@actions/http-client',
  ].map((from, i) => ({ file: `src/install/up-${i}.ts`, from, rule: RESTRICTED })),
  ...['../project/x.ts', '../actions/x.ts', '../../hub/x.ts', '@actions/core', '@actions/http-client'].map(
    (from, i) => ({
      file: `src/marketplace/up-${i}.ts`,
      from,
      rule: RESTRICTED,
    }),
  ),
  ...['../marketplace/x.ts', '../actions/x.ts', '../../hub/x.ts', '@actions/core', '@actions/http-client'].map(
    (from, i) => ({
      file: `src/project/up-${i}.ts`,
      from,
      rule: RESTRICTED,
    }),
  ),
  { file: 'src/actions/http.ts', from: '@actions/http-client', rule: RESTRICTED },
  { file: 'src/actions/hub.ts', from: '../../hub/x.ts', rule: RESTRICTED },
  { file: 'src/main.ts', from: '../hub/x.ts', rule: RESTRICTED },
  { file: 'hub/core.ts', from: '../src/core/x.ts', rule: RESTRICTED },
  { file: 'hub/marketplace/core.ts', from: '../../src/core/x.ts', rule: RESTRICTED },
  { file: 'src/core/ring-a.ts', from: './ring-b.ts', rule: CYCLE },
  { file: 'src/core/ring-b.ts', from: './ring-a.ts', rule: CYCLE },
  { file: 'src/core/fine.ts', from: './x.ts', rule: undefined },
  { file: 'src/net/fine.ts', from: '../core/x.ts', rule: undefined },
  { file: 'src/net/fine-http.ts', from: '@actions/http-client', rule: undefined },
  { file: 'src/install/fine.ts', from: '../net/x.ts', rule: undefined },
  { file: 'src/install/fine-files.ts', from: 'node:fs/promises', rule: undefined },
  { file: 'src/marketplace/fine.ts', from: '../install/x.ts', rule: undefined },
  { file: 'src/project/fine.ts', from: '../install/x.ts', rule: undefined },
  { file: 'src/actions/fine.ts', from: '../marketplace/x.ts', rule: undefined },
  { file: 'src/actions/fine-runner.ts', from: '@actions/core', rule: undefined },
  { file: 'hub/fine.ts', from: './x.ts', rule: undefined },
]

const TARGETS = ['core', 'net', 'install', 'marketplace', 'project', 'actions'].map(layer => `src/${layer}/x.ts`)

interface Diagnostic {
  readonly category: string
  readonly location: { readonly path: string }
}

describe('the layers', () => {
  let tree: string
  let diagnostics: readonly Diagnostic[]

  before(() => {
    tree = mkdtempSync(join(tmpdir(), 'layers-'))
    cpSync(join(ROOT, 'biome.json'), join(tree, 'biome.json'))
    for (const file of [...TARGETS, 'hub/x.ts']) write(tree, file, 'export const x = 1\n')
    for (const { file, from } of imports) write(tree, file, `export * from '${from}'\n`)
    diagnostics = lint(tree)
  })

  after(() => rmSync(tree, { recursive: true, force: true }))

  for (const { file, from, rule } of imports) {
    it(`${rule === undefined ? 'let' : 'do not let'} ${file} import ${from}`, () => {
      const found = diagnostics.filter(({ location }) => location.path === file).map(({ category }) => category)
      assert.deepEqual(
        found.filter(category => category === RESTRICTED || category === CYCLE),
        rule === undefined ? [] : [rule],
      )
    })
  }
})

function write(tree: string, file: string, text: string): void {
  mkdirSync(dirname(join(tree, file)), { recursive: true })
  writeFileSync(join(tree, file), text)
}

function lint(tree: string): readonly Diagnostic[] {
  const biome = join(ROOT, 'node_modules', '.bin', 'biome')
  const { stdout } = spawnSync(biome, ['lint', '--reporter=json', '--max-diagnostics=none', '.'], {
    cwd: tree,
    encoding: 'utf8',
  })
  return JSON.parse(stdout).diagnostics
}
