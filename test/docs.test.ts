import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { manifestSchema } from '../src/core/content/manifest.ts'
import { ERROR_CODES } from '../src/core/errors.ts'
import { hostConfigSchema } from '../src/core/plan/host-config.ts'
import { ACTIONS, keysOfStep } from '../src/core/plan/step.ts'
import { localReportSchema } from '../src/install/reports/local-report.ts'
import { MARKETPLACE_TRANSITIONS } from '../src/marketplace/deployment.ts'
import { PROJECT_TRANSITIONS } from '../src/project/deployment.ts'
import { ROLLBACK_TRANSITIONS } from '../src/rollback/deployment.ts'
import { headingsOf, PAGES, ROOT, readPage as read, withoutBlocks } from './doc-pages.ts'

/** Folders whose comments name sections of the pages. */
const SOURCES = ['src', 'hub', 'local', 'bench', 'scripts', 'examples', '.github']
/** A name in backticks, perhaps with a value. */
const HYPHENATED = /`([a-z0-9]+(?:-[a-z0-9]+)+)(?:: [^`]+)?`/g
/** Inputs and outputs of all actions and of the reusable workflow, and words of GitHub and git in the pages. */
const INTERFACE = new Set([
  ...['.', 'fleet', 'project', 'remove', 'rollback', 'status', 'verify'].flatMap(folder =>
    namesOf(parse(read(`${folder}/action.yml`))),
  ),
  ...namesOf(parse(read('.github/workflows/rollout.yml')).on.workflow_call),
  ...['persist-credentials', 'runs-on', 'self-hosted', 'export-subst', 'export-ignore'],
])
/** Files of a plugin, and of the operator's repository, that the pages name. */
const FILES_ELSEWHERE = ['src/main.py', '.github/workflows/deploy.yml']
/** A path in backticks. */
const REPOSITORY_PATH = /`((?:\.ci|\.github|bench|dist|docs|examples|hub|local|schemas|scripts|src|test)\/[\w./-]+)`/g
const MAX_README_WORDS = 1200
/** A row that needs more belongs on a page of its own. */
const MAX_ROW_WORDS = 44
const ACTION_PAGES = ['project', 'fleet', 'remove', 'rollback', 'status', 'verify'].map(folder => `${folder}/README.md`)

describe('docs/errors.md', () => {
  it('explains every error code exactly once, and no other code', () => {
    const explained = [...read('docs/errors.md').matchAll(/^\| `([a-z_]+)` \|/gm)].map(([, code]) => code)
    assert.deepEqual(explained.toSorted(), [...ERROR_CODES].toSorted())
  })
})

describe('docs/threat-model.md', () => {
  it('names, in each row, existing tests of the defense', () => {
    const rows = read('docs/threat-model.md').matchAll(/^\| (?!Attack|---)(.+?) \| (?!None)(.+) \|$/gm)
    const named = [...rows].map(([, attack, defense = '']) => ({
      attack,
      tests: [...defense.matchAll(/`(test\/\S+?\.test\.ts)`/g)].map(([, path = '']) => path),
    }))
    assert.ok(named.length > 20)
    assert.deepEqual(
      named.filter(({ tests }) => tests.length === 0 || !tests.every(path => existsSync(join(ROOT, path)))),
      [],
    )
  })
})

describe('the comments of the sources', () => {
  it('refer to sections that the pages have', () => {
    const text = SOURCES.flatMap(listFiles).map(read).join('\n')
    const referred = [...text.matchAll(/(docs\/[\w-]+\.md), "([^"]+)"/g)].map(([, page = '', title = '']) => [
      page,
      title,
    ])
    assert.ok(referred.length > 10)
    assert.deepEqual(
      referred.filter(([page = '', title = '']) => !headingsOf(page).includes(title)),
      [],
    )
  })
})

/** What people copy: pages, example files, workflows, and the workflow that `npm run try` prints. */
const COPIED = [...PAGES, ...['examples', '.github'].flatMap(listFiles), 'scripts/try/show.ts']

describe('the workflows in pages and examples', () => {
  it("pin each action of somebody else to one commit, and name that commit's version", () => {
    const used = COPIED.flatMap(path =>
      [...read(path).matchAll(/uses: (?!OWNER\/|\.)([^@\s]+)@(.*?)(?:'.*)?$/gm)].map(([, name, pin = '']) => ({
        path,
        name,
        pin: pin.split(/[;,]/)[0],
      })),
    )
    assert.ok(used.length > 10)
    assert.deepEqual(
      used.filter(({ pin = '' }) => !/^[0-9a-f]{40} # v\d+\.\d+\.\d+$/.test(pin)),
      [],
    )
    const names = new Set(used.map(({ name }) => name))
    assert.equal(new Set(used.map(({ name, pin }) => `${name} ${pin}`)).size, names.size)
  })
})

/** Directories that only root can change. */
const OF_ROOT = ['/etc/', '/opt/hub-deploy/']
/** Settings with which systemd, as root, reads or enters a path. */
const READ_AS_ROOT =
  /^#?(?:EnvironmentFile|LoadCredential\w*|Bind\w*Paths|Root\w+|WorkingDirectory|Exec\w+)=[^/\n]*(\/.*?)(?:[ :]|$)/gm

describe('what root reads', () => {
  const units = listFiles('examples/systemd')

  it('is not below a folder of the user as whom a unit runs, which may replace it by a symlink', () => {
    assert.ok(units.length > 1)
    for (const unit of units) {
      const paths = [...read(unit).matchAll(READ_AS_ROOT)].map(([, path = '']) => path)
      assert.notEqual(paths.length, 0)
      assert.deepEqual(
        paths.filter(path => !OF_ROOT.some(folder => path.startsWith(folder))),
        [],
      )
    }
  })

  it('is nothing that a unit runs: it runs as another user, who gains nothing by su and sudo', () => {
    for (const unit of units) {
      assert.match(read(unit), /^User=(?!root$|0$)\w/m)
      assert.match(read(unit), /^NoNewPrivileges=yes$/m)
      assert.doesNotMatch(read(unit), /^#?Exec\w+=[-@:]*[+!]/m)
    }
  })

  it("is never an EnvironmentFile= in a page, and root copies and grants nothing below the runner's folders", () => {
    for (const path of COPIED) {
      assert.doesNotMatch(read(path), /EnvironmentFile=[^`\n]|LoadCredential\w*=\S*:\/srv/, path)
      assert.doesNotMatch(read(path), /sudo (?!-u )[^\n]*(?:setfacl|chown|chmod|cp) |cp [^\n]*RUNNER/, path)
    }
  })
})

/** The fields of a report file, without those that only the summary and the log use. */
const WRITTEN_FIELDS = Object.keys(localReportSchema.def.getter().shape).filter(
  name => !['previous_sha256', 'unrecorded', 'signature_valid'].includes(name),
)

for (const [page, subject, names] of [
  ['docs/contracts.md', 'state of the deploy action', Object.keys(MARKETPLACE_TRANSITIONS)],
  ['docs/contracts.md', 'state of the rollback action', Object.keys(ROLLBACK_TRANSITIONS)],
  ['docs/project-contract.md', 'state of the project action', Object.keys(PROJECT_TRANSITIONS)],
  ['docs/project-contract.md', 'field of manifest.json', Object.keys(manifestSchema.def.getter().shape)],
  ['docs/files.md', 'field of the local report', WRITTEN_FIELDS],
  ['docs/plan.md', 'action of a plan', ACTIONS],
  ['docs/plan.md', 'field of a step', [...new Set(ACTIONS.flatMap(keysOfStep))]],
  ['docs/host-config.md', 'field of the host config', Object.keys(hostConfigSchema.def.getter().shape)],
] as const) {
  describe(page, () => {
    it(`names every ${subject}`, () => {
      const text = read(page)
      assert.deepEqual(
        names.filter(name => !text.includes(`\`${name}\``) && !text.includes(`\`${name}.`)),
        [],
      )
    })
  })
}

describe('the pictures', () => {
  const shown = PAGES.flatMap(page =>
    [...withoutBlocks(page).matchAll(/!\[([^\]]*)\]\(([^)]+)\)/g)].map(([, text = '', path = '']) => ({
      text,
      path: join(dirname(page), path),
    })),
  )

  it('have a description for readers who cannot see them', () => {
    assert.deepEqual(
      shown.filter(({ text }) => text.split(/\s+/).length < 5),
      [],
    )
  })

  it('are all shown in a page, except for the phone and dark variants', () => {
    const files = readdirSync(join(ROOT, 'docs/pictures')).filter(name => !/-(?:phone|dark)\.png$/.test(name))
    assert.deepEqual(
      files.filter(name => !shown.some(({ path }) => path === join('docs/pictures', name))),
      [],
    )
  })
})

describe('docs/glossary.md', () => {
  it('explains each word once, in alphabetical order', () => {
    const words = [...read('docs/glossary.md').matchAll(/^\| (?!Word|---)(.+?) \|/gm)].map(([, word = '']) => word)
    assert.ok(words.length > 30)
    assert.deepEqual(words, [...new Set(words)].toSorted(new Intl.Collator('en').compare))
  })
})

describe('README.md', () => {
  it(`has at most ${MAX_README_WORDS} words of prose, without tables and blocks`, () => {
    const prose = withoutBlocks('README.md').replace(/^(?:\||<!--).*$/gm, '')
    const words = prose.split(/\s+/).filter(word => /\w/.test(word))
    assert.ok(words.length <= MAX_README_WORDS, `${words.length} words`)
  })
})

describe('the tables of inputs and outputs', () => {
  it(`have at most ${MAX_ROW_WORDS} words in a row`, () => {
    const rows = ['README.md', ...ACTION_PAGES].flatMap(page =>
      [...read(page).matchAll(/<!-- (inputs|outputs) -->\n([\s\S]*?)\n<!-- /g)].flatMap(([, , table = '']) =>
        table.split('\n').map(row => ({ page, row, words: row.split(/\s+/).filter(word => /\w/.test(word)).length })),
      ),
    )
    assert.ok(rows.length > 100)
    assert.deepEqual(
      rows.filter(({ words }) => words > MAX_ROW_WORDS),
      [],
    )
  })

  it('match each action.yml', () => {
    execFileSync(process.execPath, [join(ROOT, 'scripts/docs.ts'), '--check'])
  })
})

for (const readme of ACTION_PAGES) {
  describe(`the table of errors in ${readme}`, () => {
    it('names only codes that exist', () => {
      const table =
        read(readme)
          .split(/\| `error-code` \| (?:Look here first|What to do) \|/)[1]
          ?.split('\n\n')[0] ?? ''
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

    it('names only inputs and outputs that an action has', () => {
      const named = [...withoutBlocks(page).matchAll(HYPHENATED)].map(([, name = '']) => name)
      assert.deepEqual(
        named.filter(name => !INTERFACE.has(name)),
        [],
      )
    })

    it('names only files of the repository that exist', () => {
      const named = [...withoutBlocks(page).matchAll(REPOSITORY_PATH)].map(([, path = '']) => path)
      assert.deepEqual(
        named.filter(path => !FILES_ELSEWHERE.includes(path) && !existsSync(join(ROOT, path))),
        [],
      )
    })
  })
}

function namesOf({ inputs = {}, outputs = {} }: { inputs?: object; outputs?: object }): string[] {
  return [...Object.keys(inputs), ...Object.keys(outputs)]
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
    return anchor !== undefined && !headingsOf(file).map(anchorOf).includes(anchor)
  }
}

function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-')
}

function listFiles(folder: string): string[] {
  const names = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
  return names.filter(name => /\.(?:ts|py|ya?ml|service)$/.test(name)).map(name => join(folder, name))
}
