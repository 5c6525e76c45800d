import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { after, before, describe, it } from 'node:test'

const ROOT = join(import.meta.dirname, '..')
const RESTRICTED = 'lint/style/noRestrictedImports'
const CYCLE = 'lint/suspicious/noImportCycles'

/**
 * From the top: a layer may import the layers after it. Folders in one layer do not import each other, except for
 * `SIDEWAYS`.
 */
const LAYERS = {
  src: [
    ['actions', 'start'],
    ['runner', 'marketplace', 'project', 'rollback', 'sources'],
    ['install'],
    ['net', 'fleet'],
    ['core'],
  ],
  'src/install': [
    ['inspection'],
    ['deployment'],
    ['reports', 'steps'],
    ['transaction'],
    ['host', 'services'],
    ['archive'],
    ['files'],
  ],
  'src/install/deployment': [['dry-run'], ['run'], ['recovery']],
  'src/install/steps': [['switch'], ['settings'], ['parts']],
  'src/install/transaction': [['journal'], ['changes']],
  'src/marketplace': [['gate'], ['api']],
  'src/project': [['api', 'parts']],
  'src/net': [['relay'], ['exchange'], ['policy']],
  'src/core': [['plan'], ['content'], ['archive'], ['document', 'trust', 'columns']],
} as const satisfies Record<string, readonly (readonly string[])[]>

const MACHINE = ['node:fs', 'node:fs/promises', 'node:http', 'node:https', 'node:net', 'node:os', 'node:child_process']
const RUNNER = '@actions/core'
const HTTP = '@actions/http-client'

/** The only import between folders of one layer: parts of a project may come from a marketplace. */
const SIDEWAYS: ReadonlySet<string> = new Set(['sources to marketplace'])

/** The packages that each folder of `src` may import. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  start: MACHINE,
  actions: MACHINE,
  runner: [...MACHINE, RUNNER],
  marketplace: MACHINE,
  project: MACHINE,
  rollback: MACHINE,
  sources: MACHINE,
  install: MACHINE,
  net: [...MACHINE, HTTP],
  fleet: [],
  core: [],
}

interface Row {
  readonly file: string
  readonly from: string
  /** The rule that must refuse the import; undefined if the import is allowed. */
  readonly rule: string | undefined
}

/** The files to lint, each with its import and the rule that must refuse that import. */
const imports: readonly Row[] = [
  ...Object.entries(LAYERS).flatMap(([parent, layers]) => [...rowsOf(parent, layers), ...outwardRows(parent, layers)]),
  ...Object.entries(MAY_IMPORT).flatMap(([folder, allowed]) =>
    [...MACHINE, RUNNER, HTTP].map((from, index) => ({
      file: `src/${folder}/package-${index}.ts`,
      from,
      rule: allowed.includes(from) ? undefined : RESTRICTED,
    })),
  ),
  ...(['src/core', 'src/install'] as const).flatMap(parent =>
    LAYERS[parent].flat().map(folder => ({
      file: `${parent}/${folder}/deep-package.ts`,
      from: RUNNER,
      rule: RESTRICTED,
    })),
  ),
  ...LAYERS.src.flat().map(folder => ({ file: `src/${folder}/hub.ts`, from: '../../hub/x.ts', rule: RESTRICTED })),
  { file: 'src/install/deployment/recovery/above.ts', from: '../x.ts', rule: RESTRICTED },
  { file: 'src/install/transaction/changes/above.ts', from: '../x.ts', rule: RESTRICTED },
  { file: 'src/project/api/above.ts', from: '../x.ts', rule: RESTRICTED },
  { file: 'src/marketplace/api/above.ts', from: '../x.ts', rule: RESTRICTED },
  { file: 'src/net/policy/above.ts', from: '../x.ts', rule: RESTRICTED },
  { file: 'src/install/files/core-archive.ts', from: '../../core/archive/x.ts', rule: undefined },
  { file: 'src/main.ts', from: '../hub/x.ts', rule: RESTRICTED },
  { file: 'hub/core.ts', from: '../src/core/x.ts', rule: RESTRICTED },
  { file: 'hub/marketplace/core.ts', from: '../../src/core/x.ts', rule: RESTRICTED },
  { file: 'hub/fine.ts', from: './x.ts', rule: undefined },
  { file: 'src/core/ring-a.ts', from: './ring-b.ts', rule: CYCLE },
  { file: 'src/core/ring-b.ts', from: './ring-a.ts', rule: CYCLE },
]

type Layers = readonly (readonly string[])[]

/** Two rows for each pair of folders: for an import from the first folder itself, and from a folder inside it. */
function rowsOf(parent: string, layers: Layers): Row[] {
  return layers.flat().flatMap(name =>
    rulesFor(name, layers).flatMap(([other, rule]) =>
      ['', 'deeper/'].map(deeper => ({
        file: `${parent}/${name}/${deeper}to-${other}.ts`,
        from: `${deeper && '../'}../${other}/x.ts`,
        rule,
      })),
    ),
  )
}

/**
 * Rows for imports from inside a layered folder: one for each folder in it and each neighbor of the layered folder. The
 * layered folder's rule applies to these imports, too.
 */
function outwardRows(parent: string, layers: Layers): Row[] {
  const outer: Layers = new Map<string, Layers>(Object.entries(LAYERS)).get(dirname(parent)) ?? []
  return layers.flat().flatMap(name =>
    rulesFor(basename(parent), outer).map(([other, rule]) => ({
      file: `${parent}/${name}/out-to-${other}.ts`,
      from: `../../${other}/x.ts`,
      rule,
    })),
  )
}

/**
 * The other folders, each with the rule that must refuse an import of that folder; undefined if the import is allowed.
 */
function rulesFor(name: string, layers: Layers): (readonly [string, Row['rule']])[] {
  const depthOf = (folder: string): number => layers.findIndex(layer => layer.includes(folder))
  const isAllowed = (other: string): boolean => depthOf(other) > depthOf(name) || SIDEWAYS.has(`${name} to ${other}`)
  const others = layers.flat().filter(other => other !== name)
  return others.map(other => [other, isAllowed(other) ? undefined : RESTRICTED])
}

const TARGETS = Object.entries(LAYERS).flatMap(([parent, layers]) =>
  layers.flat().map(folder => `${parent}/${folder}/x.ts`),
)

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
