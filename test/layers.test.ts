import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { type Imports, importsIn } from './imports.ts'

type Layers = readonly (readonly string[])[]

/**
 * Imports run one way, types included: from the top of a list to its bottom, never between names of one row. A name is
 * a folder or a file in the folder of the list. `.` stands for the folder's own files that the list does not name;
 * without a `.`, such files are free.
 */
const LAYERS: Readonly<Record<string, Layers>> = {
  '': [['test'], ['scripts'], ['bench'], ['local'], ['src', 'hub']],
  src: [
    ['main.ts', 'actions', 'start'],
    ['runner', 'marketplace', 'project', 'rollback', 'sources'],
    ['install'],
    ['net', 'fleet'],
    ['core'],
  ],
  'src/runner': [['step.ts'], ['summaries'], ['.']],
  'src/install': [
    ['status.ts'],
    ['run'],
    ['recovery'],
    ['steps', 'reports'],
    ['transaction'],
    ['journal'],
    ['changes'],
    ['trees'],
    ['host', 'services'],
    ['archive'],
    ['files'],
  ],
  'src/core': [['plan'], ['content'], ['archive'], ['yaml', 'trust'], ['.']],
}

/** The imports that a list forbids and that are allowed all the same, as `from → to`. */
const EXCEPTIONS: readonly string[] = ['src/main.ts → src/actions', 'src/sources → src/marketplace', 'scripts → test']

/** The only folder that may import each of these packages. */
const ONLY_IN: Readonly<Record<string, string>> = { '@actions/core': 'src/runner', '@actions/http-client': 'src/net' }

/** Folders without files, network, processes or machine, and all that they may import of Node.js. */
const PURE: readonly string[] = ['src/core', 'src/fleet']
const PURE_MODULES: readonly string[] = ['node:buffer', 'node:crypto']

const ROOT = join(import.meta.dirname, '..')
const FILES = globSync('{bench,hub,local,scripts,src,test}/**/*.ts', { cwd: ROOT })
const IMPORTS = importsIn(FILES.map(file => [file, readFileSync(join(ROOT, file), 'utf8')]))

describe('the imports of all files', () => {
  it('run one way', () => assert.deepEqual(findUpward(IMPORTS), []))

  it('form no cycle', () => assert.deepEqual(findCycles(IMPORTS), []))

  it('reach each package only from where it may be used', () => assert.deepEqual(findForbidden(IMPORTS), []))
})

describe('the table of layers', () => {
  for (const [folder, layers] of Object.entries(LAYERS)) {
    it(`has a place for every folder in ${folder || 'the repository'}, and names nothing that does not exist`, () => {
      const names = layers.flat().filter(name => name !== '.')
      const existing = new Set(FILES.flatMap(file => stepsBelow(folder, file).slice(0, 1)))
      const layered = [...existing].filter(name => !name.endsWith('.ts') || names.includes(name))
      assert.deepEqual(layered.sort(), names.sort())
    })
  }

  it('has no exception that no import needs', () => {
    const used = new Set<string>()
    findUpward(IMPORTS, exception => used.add(exception))
    assert.deepEqual([...used].sort(), EXCEPTIONS.toSorted())
  })
})

describe('the search for imports that break a rule', () => {
  const kinds: Readonly<Record<string, (from: string) => string>> = {
    import: from => `import { b } from '${from}'`,
    'import of everything': from => `import * as b from '${from}'`,
    'import over several lines': from => `import {\n  a,\n  // what isn't "a"\n  type B,\n} from '${from}'`,
    'import for its effects': from => `import '${from}'`,
    'type-only import': from => `import type { B } from '${from}'`,
    'import of a type among values': from => `import { a, type B } from '${from}'`,
    'import of a type in place': from => `let b: import('${from}').B`,
    'import of the type of a module': from => `let b: typeof import('${from}')`,
    'import at run time': from => `const b = await import('${from}')`,
    export: from => `export { b } from '${from}'`,
    'export of everything': from => `export * from '${from}'`,
    'type-only export': from => `export type { B } from '${from}'`,
  }
  for (const [kind, write] of Object.entries(kinds)) {
    it(`finds each upward ${kind}`, () => {
      const found = importsIn([
        [
          'src/core/a.ts',
          `import { join } from 'node:path'\n${write('../install/files/b.ts')}\n${write('../net/c.ts')}`,
        ],
        ['src/install/files/b.ts', write('../../net/c.ts')],
        ['src/net/c.ts', 'export const c = 1'],
      ])
      assert.deepEqual(findUpward(found), [
        'src/core/a.ts → src/install/files/b.ts (in src, install is above core)',
        'src/core/a.ts → src/net/c.ts (in src, net is above core)',
      ])
    })

    it(`finds each cycle with a certain ${kind}`, () => {
      const found = importsIn([
        ['hub/a.ts', `import './page/b.ts'\n${write('./d.ts')}`],
        ['hub/page/b.ts', "import './c.ts'"],
        ['hub/page/c.ts', write('../a.ts')],
        ['hub/d.ts', "import './page/b.ts'\nimport './e.ts'"],
        ['hub/e.ts', "import './d.ts'"],
      ])
      assert.deepEqual(findCycles(found), [
        'hub/a.ts → hub/page/b.ts → hub/page/c.ts → hub/a.ts',
        'hub/d.ts → hub/e.ts → hub/d.ts',
      ])
    })

    it(`finds each forbidden package in an ${kind}`, () => {
      const found = importsIn([['src/core/a.ts', `${write('node:fs/promises')}\n${write('@actions/core')}`]])
      assert.deepEqual(findForbidden(found), [
        'src/core/a.ts → node:fs/promises (of Node.js, src/core may import only node:buffer and node:crypto)',
        'src/core/a.ts → @actions/core (only src/runner may import @actions/core)',
      ])
    })
  }

  it('takes no other text for an import', () => {
    const text = [
      "export const from = 'src/a.ts'",
      "export function read(from = 'src/a.ts') {}",
      "export interface Import {\n  from: 'src/a.ts'\n}",
      "// import { a } from 'src/a.ts'",
      'const text = "import { a } from \'src/a.ts\'"',
    ]
    assert.deepEqual(importsIn([['src/b.ts', text.join('\n')]]), new Map([['src/b.ts', []]]))
  })

  const paths: readonly (readonly [from: string, to: string, rule: string | undefined])[] = [
    ['src/core/plan/a.ts', 'src/core/a.ts', undefined],
    ['src/core/a.ts', 'src/core/b.ts', undefined],
    ['src/core/a.ts', 'src/core/plan/b.ts', 'in src/core, plan is above .'],
    ['src/net/a.ts', 'src/fleet/b.ts', 'in src, net and fleet are in one layer'],
    ['src/rollback/a.ts', 'src/project/b.ts', 'in src, rollback and project are in one layer'],
    ['src/sources/a.ts', 'src/marketplace/b.ts', undefined],
    ['src/marketplace/a.ts', 'src/sources/b.ts', 'in src, marketplace and sources are in one layer'],
    ['src/main.ts', 'src/actions/a.ts', undefined],
    ['src/main.ts', 'src/start/a.ts', 'in src, main.ts and start are in one layer'],
    ['src/install/host/a.ts', 'src/core/plan/b.ts', undefined],
    ['src/install/files/in/a.ts', 'src/install/archive/in/b.ts', 'in src/install, archive is above files'],
    ['hub/a.ts', 'src/core/b.ts', 'in the repository, hub and src are in one layer'],
    ['src/core/a.ts', 'hub/b.ts', 'in the repository, src and hub are in one layer'],
    ['src/core/a.ts', 'test/b.ts', 'in the repository, test is above src'],
    ['test/a.ts', 'src/core/b.ts', undefined],
  ]
  for (const [from, to, rule] of paths) {
    it(`${rule === undefined ? 'lets' : 'does not let'} ${from} import ${to}`, () => {
      const found = findUpward(
        new Map([
          [from, [to]],
          [to, []],
        ]),
      )
      assert.deepEqual(found, rule === undefined ? [] : [`${from} → ${to} (${rule})`])
    })
  }

  const packages: readonly (readonly [file: string, name: string, rule: string | undefined])[] = [
    ['src/runner/a.ts', '@actions/core', undefined],
    ['src/actions/a.ts', '@actions/core', 'only src/runner may import @actions/core'],
    ['src/net/a.ts', '@actions/http-client/lib/proxy', undefined],
    ['src/sources/a.ts', '@actions/http-client/lib/proxy', 'only src/net may import @actions/http-client'],
    ['src/core/a.ts', 'node:crypto', undefined],
    ['src/core/a.ts', 'zod/mini', undefined],
    ['src/fleet/a.ts', 'node:os', 'of Node.js, src/fleet may import only node:buffer and node:crypto'],
    ['src/install/a.ts', 'node:os', undefined],
  ]
  for (const [file, name, rule] of packages) {
    it(`${rule === undefined ? 'lets' : 'does not let'} ${file} import ${name}`, () => {
      const found = findForbidden(new Map([[file, [name]]]))
      assert.deepEqual(found, rule === undefined ? [] : [`${file} → ${name} (${rule})`])
    })
  }
})

/** Returns `from → to (rule)` for each import that the table forbids. Passes on each exception that an import needs. */
function findUpward(imports: Imports, excepted?: (exception: string) => void): string[] {
  return [...imports].flatMap(([from, all]) =>
    all.flatMap(to => {
      // The compiler refuses a file that does not exist.
      const broken = imports.has(to) ? brokenRule(from, to) : undefined
      if (broken === undefined) return []
      if (!EXCEPTIONS.includes(broken.exception)) return [`${from} → ${to} (${broken.rule})`]
      excepted?.(broken.exception)
      return []
    }),
  )
}

/** The list of the deepest folder that contains both files decides. */
function brokenRule(from: string, to: string): { readonly rule: string; readonly exception: string } | undefined {
  const steps = from.split('/')
  const folder = steps
    .slice(
      0,
      steps.findIndex((step, index) => step !== to.split('/')[index]),
    )
    .join('/')
  const layers = LAYERS[folder] ?? []
  const [a, b] = [nameIn(layers, folder, from), nameIn(layers, folder, to)]
  const [depth, other] = [a, b].map(name => layers.findIndex(layer => layer.includes(name))) as [number, number]
  if (depth < other || a === b || other === -1) return undefined
  const pathOf = (name: string): string => (folder === '' ? name : `${folder}/${name}`)
  const rule = depth === other ? `${a} and ${b} are in one layer` : `${b} is above ${a}`
  return { rule: `in ${folder || 'the repository'}, ${rule}`, exception: `${pathOf(a)} → ${pathOf(b)}` }
}

function nameIn(layers: Layers, folder: string, file: string): string {
  const [step = '', ...deeper] = stepsBelow(folder, file)
  return deeper.length > 0 || layers.flat().includes(step) ? step : '.'
}

function stepsBelow(folder: string, file: string): string[] {
  if (folder === '') return file.split('/')
  return file.startsWith(`${folder}/`) ? file.slice(folder.length + 1).split('/') : []
}

/** Returns the path of each cycle, one for each import that closes a cycle. */
function findCycles(imports: Imports): string[] {
  const cycles: string[] = []
  const path: string[] = []
  const done = new Set<string>()
  const visit = (file: string): void => {
    if (path.includes(file)) cycles.push([...path.slice(path.indexOf(file)), file].join(' → '))
    if (path.includes(file) || done.has(file)) return
    path.push(file)
    for (const to of imports.get(file) ?? []) visit(to)
    path.pop()
    done.add(file)
  }
  for (const file of imports.keys()) visit(file)
  return cycles
}

/** Returns `file → package (rule)` for each import of a package that the file may not use. */
function findForbidden(imports: Imports): string[] {
  return [...imports].flatMap(([file, all]) =>
    all.flatMap(name => {
      const rule = brokenPackageRule(file, name)
      return rule === undefined ? [] : [`${file} → ${name} (${rule})`]
    }),
  )
}

function brokenPackageRule(file: string, name: string): string | undefined {
  const owned = Object.entries(ONLY_IN).find(([owned]) => `${name}/`.startsWith(`${owned}/`))
  if (owned !== undefined && !file.startsWith(`${owned[1]}/`)) return `only ${owned[1]} may import ${owned[0]}`
  const pure = PURE.find(folder => file.startsWith(`${folder}/`))
  if (pure === undefined || !name.startsWith('node:') || PURE_MODULES.includes(name)) return undefined
  return `of Node.js, ${pure} may import only ${PURE_MODULES.join(' and ')}`
}
