import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { Ajv, type ValidateFunction } from 'ajv'
import { parse, parseDocument } from 'yaml'
import { buildJsonSchemas } from '../../scripts/json-schemas.ts'
import { hostConfigSchema, parseHostConfig } from '../../src/core/plan/host-config.ts'
import { PlanError, parsePlan, planSchema } from '../../src/core/plan/plan.ts'
import { blocksOf, ROOT } from '../doc-pages.ts'
import { REFUSED_PLANS } from '../e2e/harness/refusal.ts'
import { PLUGIN_PLAN, SERVICE_PLAN } from '../e2e/harness/stage.ts'
import { byExtent, HANG_LIMIT_MS } from '../extent.ts'

const SCHEMAS = buildJsonSchemas()
/** The number of files of each kind that are changed. The first file has every key. */
const MUTATED = byExtent({ sample: 1, ci: Number.POSITIVE_INFINITY })
const COMMENT = '# yaml-language-server: $schema=https://raw.githubusercontent.com/OWNER/hub-deploy/v1/schemas/'

/** A plan with every action and every key. */
const EVERY_STEP = `format_version: "1"
project_id: greeter
version: 1.0.0
steps:
  - {id: a, action: prepare}
  - {id: b, action: install_plugin, plugin: greeter, snapshot: true, depends_on: [a], source: {url: "https://h/r", ref: x}}
  - {id: c, action: install_extension, extension: clock, source: {marketplace_slug: clock}}
  - {id: d, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [b]}
  - {id: e, action: provision, plugin: greeter}
  - {id: f, action: configure_plugin, plugin: greeter}
  - {id: g, action: start, plugin: greeter}
  - {id: h, action: stop}
  - {id: i, action: restart}
  - {id: j, action: healthcheck, plugin: greeter, timeout: 2m, retries: 3, depends_on: [g, i]}
  - {id: k, action: healthcheck, timeout: 30}
  - {id: l, action: notify, event: deployed, message: It is new}
`

const EVERY_KEY = `version: 1
supervisor: systemd
systemd: {scope: user, unit: "app-{id}@1.service", project_unit: app.service}
docker: {container: "app_{id}"}
kubernetes: {namespace: apps, deployment: "{id}", kubeconfig: /etc/kube/config, context: here}
plugins:
  a: {unit: a.service, healthcheck: {http: "http://127.0.0.1:1/h", status: 204, body: ok, interval: 2s, stable_for: 1m}}
  b: {container: b, healthcheck: {tcp: "[::1]:80"}}
  c: {deployment: c, healthcheck: {command: [/bin/true, -x], interval: 1}}
provision: {a: {command: [make-db], env: {PGHOST: h}, timeout: 1h}}
notify: {deployed: {command: [tell], timeout: 10}}
`

interface Form {
  readonly path: string
  readonly schema: typeof planSchema | typeof hostConfigSchema
  readonly parse: (text: string) => unknown
  /** Whole files that the parser accepts. */
  readonly files: readonly string[]
  /** The reasons why the actions refuse a value that the JSON Schema accepts; docs/plan.md, "In your editor". */
  readonly differences: Readonly<Record<string, RegExp>>
}

const TIME = /^must be \d+ to \d+ seconds/
const FORMS: Readonly<Record<string, Form>> = {
  'a plan': {
    path: 'schemas/install-plan.schema.json',
    schema: planSchema,
    parse: text => parsePlan(text, 'install.yaml'),
    files: [
      EVERY_STEP,
      PLUGIN_PLAN,
      SERVICE_PLAN,
      ...examplesNaming('install-plan'),
      ...blocksLike(/^format_version:/),
    ],
    differences: { 'a time that is too long': TIME },
  },
  'a host config': {
    path: 'schemas/host-config.schema.json',
    schema: hostConfigSchema,
    parse: text => parseHostConfig(text, 'host.yaml'),
    files: [EVERY_KEY, ...examplesNaming('host-config'), ...blocksLike(/^version: .*\nsupervisor:/)],
    differences: {
      'a time that is too long': TIME,
      'a URL with a user, or without a host': /^must be an http or https URL/,
      'a port that does not exist': /^must be written host:port/,
    },
  },
}

for (const [name, { path, schema, parse: parseFile, files, differences }] of Object.entries(FORMS)) {
  const validate = compile(path)

  describe(`the JSON Schema of ${name}`, () => {
    it('is the same as in the repository', () => {
      assert.equal(readFileSync(join(ROOT, path), 'utf8'), SCHEMAS[path])
    })

    it('accepts every such file in the examples and the pages', () => {
      assert.ok(files.length >= 3)
      for (const text of files) {
        parseFile(text)
        assert.ok(validate(parse(text)), `${JSON.stringify(validate.errors)}\n${text}`)
      }
    })

    it('accepts and refuses the same files as the actions, except for the known differences', () => {
      const found = new Set<string>()
      const counts = { accepted: 0, refused: 0 }
      for (const value of files.slice(0, MUTATED).flatMap(text => mutationsOf(parse(text)))) {
        const complaints = (schema.safeParse(value).error?.issues ?? []).map(({ message }) => message)
        const isAccepted = validate(value)
        counts[complaints.length === 0 ? 'accepted' : 'refused']++
        if (complaints.length === 0)
          assert.ok(isAccepted, `${JSON.stringify(value)}: ${JSON.stringify(validate.errors)}`)
        if (!isAccepted) continue
        for (const complaint of complaints) {
          const [difference] = Object.entries(differences).find(([, words]) => words.test(complaint)) ?? []
          assert.ok(difference !== undefined, `only the actions refuse ${JSON.stringify(value)}: ${complaint}`)
          found.add(difference)
        }
      }
      assert.ok(counts.accepted > 300 && counts.refused > 2000, JSON.stringify(counts))
      assert.deepEqual([...found].sort(), Object.keys(differences).sort())
    })
  })
}

describe('the patterns of the JSON Schemas', () => {
  const patterns = Object.values(SCHEMAS).flatMap(text => {
    const found: string[] = []
    JSON.parse(text, (key, value) => {
      if (key === 'pattern' && typeof value === 'string') found.push(value)
      return value
    })
    return found
  })

  it('use no character category, which many validators cannot read', () => {
    assert.ok(patterns.some(pattern => pattern.includes('\\u007f-\\u009f')))
    assert.deepEqual(
      patterns.filter(pattern => /\\p/i.test(pattern)),
      [],
    )
  })

  it('work in Python too', { skip: !hasPython() && 'python3 is not installed' }, () => {
    const compileAll = 'import json, re, sys\nfor each in json.load(sys.stdin): re.compile(each)'
    const { status, stderr } = runPython(compileAll, JSON.stringify(patterns))
    assert.equal(status, 0, stderr)
  })
})

describe('the list of mistakes that only the parser of a plan can refuse', () => {
  const validate = compile('schemas/install-plan.schema.json')
  const refused = {
    'two steps with one id': '[{id: a, action: prepare}, {id: a, action: prepare}]',
    'a dependency that no step has': '[{id: a, action: prepare, depends_on: [b]}]',
    'steps that wait for each other':
      '[{id: a, action: prepare, depends_on: [b]}, {id: b, action: prepare, depends_on: [a]}]',
    'a date without quotes': '[{id: a, action: notify, event: e, message: 2026-01-02}]',
  }
  for (const [name, steps] of Object.entries(refused)) {
    it(`includes ${name}`, () => {
      const text = `format_version: "1"\nproject_id: a\nversion: a\nsteps: ${steps}\n`
      assert.ok(validate(parse(text)))
      assert.throws(() => parsePlan(text, 'install.yaml'), PlanError)
    })
  }

  it('leaves out malformed steps, which the schema refuses in the plans of other tests', () => {
    const bad = Object.entries(REFUSED_PLANS).filter(([, { plan }]) => parseDocument(plan).errors.length === 0)
    const byForm = bad.filter(([, { plan }]) => !planSchema.safeParse(parse(plan)).success).map(([name]) => name)
    const bySchema = bad.filter(([, { plan }]) => !validate(parse(plan))).map(([name]) => name)
    assert.deepEqual(bySchema, byForm)
    assert.deepEqual(bySchema, ['has an unknown action and a key that no step has'])
  })
})

describe('the examples', () => {
  it('all name their schema in their first line', () => {
    const known = [...examplesNaming('install-plan'), ...examplesNaming('host-config')]
    const others = examples().filter(text => !known.includes(text))
    assert.deepEqual(
      others.filter(text => /^(format_version|supervisor|plugins):/m.test(text)),
      [],
    )
  })

  it('name their schema in the pages too', () => {
    const whole = blocksOf().filter(({ language, text, section }) => {
      // Leaves out the section that shows a plan as the log does, because that plan is not a saved file.
      return language === 'yaml' && isWhole(text) && section !== 'The default plan'
    })
    assert.ok(whole.length >= 3)
    assert.deepEqual(
      whole.filter(({ text }) => !text.startsWith(COMMENT)).map(({ page, line }) => `${page}:${line}`),
      [],
    )
  })
})

function hasPython(): boolean {
  return runPython('', '').status === 0
}

function runPython(program: string, input: string) {
  return spawnSync('python3', ['-c', program], { input, encoding: 'utf8', timeout: HANG_LIMIT_MS })
}

function compile(path: string): ValidateFunction {
  // With `strict`, an unknown keyword is an error. `strictTuples` would require `minItems`, which the generated tuples
  // lack.
  return new Ajv({ strict: true, strictTypes: false, strictTuples: false, strictRequired: false }).compile(
    JSON.parse(SCHEMAS[path] ?? ''),
  )
}

const VALUES: readonly unknown[] = [
  null,
  true,
  0,
  1,
  -1,
  1.5,
  30,
  599,
  600,
  601,
  3601,
  1e21,
  '',
  'x',
  'a',
  'X Y',
  '-x',
  '1',
  '..',
  '.',
  'ü',
  'x\u0000y',
  'x\ny',
  '\u2028',
  'x'.repeat(129),
  'x'.repeat(254),
  'x'.repeat(256),
  'x'.repeat(501),
  'x'.repeat(5000),
  '😀'.repeat(300),
  '30',
  '1s',
  '0s',
  '601s',
  '11m',
  '2h',
  '999999h',
  '1d',
  '{id}',
  '{id}{id}',
  '{{id}}',
  '{id',
  'a}{id}',
  'a.service',
  'A_b',
  'http://h',
  'HTTPS://h/x',
  'http://u:p@h',
  'http://',
  'https:h',
  'ftp://h',
  'javascript:1',
  ' http://h',
  'h:1',
  'h:0',
  'h:65536',
  'h:999999',
  '[::1]:1',
  ':1',
  'a/b:1',
  'plugins/a/b',
  'plugins/a/../b',
  '/plugins/a/b',
  'plugins\\a\\b',
  'a/B/c',
  'systemd',
  'none',
  'restart',
  'write_env',
  [],
  ['a'],
  ['x', ''],
  [''],
  [1],
  [['a']],
  {},
  { a: 1 },
  { command: ['x'] },
  { tcp: 'h:1' },
  { 'X Y': { command: ['x'] } },
  { A_1: 'x' },
  { 'a-b': 'x' },
  { '1A': 'x' },
]

/** The document itself, and copies with one change somewhere: a key removed, added or renamed, or a different value. */
function mutationsOf(value: unknown): unknown[] {
  const places = placesIn(value)
  const changed = places.flatMap(path => VALUES.map(other => changedAt(value, path, () => other)))
  const maps = places.filter(path => isMap(at(value, path)))
  const longer = [[], ...maps].map(path => changedAt(value, path, map => ({ ...(map as object), unknown_key: 1 })))
  const shorter = places.map(path => changedAt(value, path, () => undefined))
  const lists = places.filter(path => Array.isArray(at(value, path)))
  const doubled = lists.map(path => changedAt(value, path, list => [...(list as unknown[]), ...(list as unknown[])]))
  return [value, null, 1, [], {}, ...changed, ...longer, ...shorter, ...doubled]
}

type Path = readonly (string | number)[]

function placesIn(value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return path.length === 0 ? [] : [path]
  const keys = Array.isArray(value) ? [...value.keys()] : Object.keys(value)
  const below = keys.flatMap(key => placesIn((value as Record<string | number, unknown>)[key], [...path, key]))
  return path.length === 0 ? below : [path, ...below]
}

function at(value: unknown, path: Path): unknown {
  return path.reduce((found, key) => (found as Record<string | number, unknown>)[key], value)
}

function isMap(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** A copy with a different value at a path, or without the value if `change` returns undefined. */
function changedAt(value: unknown, [key, ...rest]: Path, change: (value: unknown) => unknown): unknown {
  if (key === undefined) return change(value)
  const copy = structuredClone(value) as Record<string | number, unknown>
  const changed = changedAt(copy[key], rest, change)
  if (changed === undefined && Array.isArray(copy)) copy.splice(Number(key), 1)
  else if (changed === undefined) delete copy[key]
  else copy[key] = changed
  return copy
}

function examples(): string[] {
  const names = readdirSync(join(ROOT, 'examples'), { recursive: true, encoding: 'utf8' })
  return names.filter(name => /\.ya?ml$/.test(name)).map(name => readFileSync(join(ROOT, 'examples', name), 'utf8'))
}

/** The examples that name this schema. */
function examplesNaming(schema: string): string[] {
  return examples().filter(text => text.startsWith(`${COMMENT}${schema}.schema.json\n`))
}

function isWhole(text: string): boolean {
  return /^format_version:|^version: .*\nsupervisor:/m.test(text)
}

/** The pages' YAML blocks whose first line after any comments matches this pattern. */
function blocksLike(first: RegExp): string[] {
  const blocks = blocksOf().filter(({ language }) => language === 'yaml')
  return blocks.map(({ text }) => text).filter(text => first.test(text.replace(/^(?:#.*\n)*/, '')))
}
