import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { describe, it } from 'node:test'
import { manifestSchema } from '../src/core/content/manifest-schema.ts'
import { ERROR_CODES } from '../src/core/errors.ts'
import { localReportSchema } from '../src/install/reports/local-report.ts'
import { MARKETPLACE_TRANSITIONS } from '../src/marketplace/states.ts'
import { PROJECT_TRANSITIONS } from '../src/project/states.ts'
import { ROLLBACK_TRANSITIONS } from '../src/rollback/states.ts'

const ROOT = join(import.meta.dirname, '..')
const PAGES = [
  ...[
    'README.md',
    'project/README.md',
    'fleet/README.md',
    'rollback/README.md',
    'status/README.md',
    'verify/README.md',
    'CONTRIBUTING.md',
    'SECURITY.md',
    'CHANGELOG.md',
  ],
  ...readdirSync(join(ROOT, 'docs')).map(name => `docs/${name}`),
]

describe('docs/errors.md', () => {
  it('explains every error code exactly once, and no other code', () => {
    const explained = [...read('docs/errors.md').matchAll(/^\| `([a-z_]+)` \|/gm)].map(([, code]) => code)
    assert.deepEqual(explained.toSorted(), [...ERROR_CODES].toSorted())
  })
})

describe('docs/threat-model.md', () => {
  it('names in each row the tests of the defence, which exist', () => {
    const rows = read('docs/threat-model.md').matchAll(/^\| (?!Attack|---)(.+?) \| (?!none)(.+) \|$/gm)
    const named = [...rows].map(([, attack, defence = '']) => ({
      attack,
      tests: [...defence.matchAll(/`(test\/\S+?\.test\.ts)`/g)].map(([, path = '']) => path),
    }))
    assert.ok(named.length > 20)
    assert.deepEqual(
      named.filter(({ tests }) => tests.length === 0 || !tests.every(path => existsSync(join(ROOT, path)))),
      [],
    )
  })
})

describe('docs/contracts.md', () => {
  it('has the sections that the sources refer to', () => {
    const sources = listSources('src').map(read).join('\n')
    const referred = [...sources.matchAll(/docs\/contracts\.md, "([^"]+)"/g)].map(([, title]) => title as string)
    assert.notEqual(referred.length, 0)
    assert.deepEqual(
      referred.filter(title => !headings('docs/contracts.md').includes(title)),
      [],
    )
  })

  for (const [subject, names] of [
    ['state of the deploy action', Object.keys(MARKETPLACE_TRANSITIONS)],
    ['state of the project action', Object.keys(PROJECT_TRANSITIONS)],
    ['state of the rollback action', Object.keys(ROLLBACK_TRANSITIONS)],
    ['field of manifest.json', Object.keys(manifestSchema.def.getter().shape)],
    ['field of the local report', Object.keys(localReportSchema.def.getter().shape)],
  ] as const) {
    it(`names every ${subject}`, () => {
      const text = read('docs/contracts.md')
      assert.deepEqual(
        names.filter(name => !text.includes(`\`${name}\``)),
        [],
      )
    })
  }
})

describe('the tables of inputs and outputs', () => {
  it('match each action.yml', () => {
    execFileSync(process.execPath, [join(ROOT, 'scripts/docs.ts'), '--check'])
  })
})

const ACTION_PAGES = ['project', 'fleet', 'rollback', 'status', 'verify'].map(folder => `${folder}/README.md`)

for (const readme of ['README.md', ...ACTION_PAGES]) {
  describe(`the table of errors in ${readme}`, () => {
    it('names only codes that exist', () => {
      const table = read(readme).split('| Look here first |')[1]?.split('\n\n')[0] ?? ''
      const named = [...table.matchAll(/^\|.*?\|/gm)].flatMap(([cell]) => [...cell.matchAll(/`(\w+)`/g)].map(m => m[1]))
      assert.notEqual(named.length, 0)
      assert.deepEqual(
        named.filter(code => !(ERROR_CODES as readonly (string | undefined)[]).includes(code)),
        [],
      )
    })
  })
}

for (const page of PAGES) {
  describe(page, () => {
    it('links only to existing files and headings', () => {
      assert.deepEqual(links(page).filter(isBroken(page)), [])
    })
  })
}

function links(page: string): string[] {
  return [...read(page).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target as string)
    .filter(target => !/^https?:/.test(target))
}

function isBroken(page: string): (target: string) => boolean {
  return target => {
    const [path, anchor] = target.split('#')
    const file = path ? join(dirname(page), path) : page
    if (!existsSync(join(ROOT, file))) return true
    return anchor !== undefined && !headings(file).map(anchorOf).includes(anchor)
  }
}

function headings(page: string): string[] {
  return [...read(page).matchAll(/^#+ (.+)$/gm)].map(([, title]) => title as string)
}

function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')
}

function listSources(folder: string): string[] {
  const entries = readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
  const files = entries.filter(entry => entry.isFile() && entry.name.endsWith('.ts'))
  return files.map(file => relative(ROOT, join(file.parentPath, file.name)))
}

function read(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8')
}
