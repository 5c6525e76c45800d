import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { ConfigError } from '../../../src/core/errors.ts'
import {
  type DependentStep,
  findCycles,
  orderSteps,
  type Plan,
  PlanError,
  type PlanProblem,
  parsePlan,
  parsePlanSlowly,
} from '../../../src/core/plan/plan.ts'

const FULL = `format_version: "1"
project_id: my-plugin
version: 1.4.0
steps:
  - {id: prepare, action: prepare}
  - {id: files, action: install_plugin, plugin: my-plugin, snapshot: true, depends_on: [prepare]}
  - {id: env, action: write_env, plugin: my-plugin, from: plugins/my-plugin/.env.template, depends_on: [files]}
  - {id: up, action: restart, plugin: my-plugin, depends_on: [env]}
  - {id: ok, action: healthcheck, plugin: my-plugin, timeout: 30s, retries: 3, depends_on: [up]}
`

function planWith(...steps: string[]): string {
  return `format_version: "1"\nproject_id: my-plugin\nversion: 1.4.0\nsteps:\n${steps.map(step => `  - ${step}\n`).join('')}`
}

function problemsOf(text: string): readonly PlanProblem[] {
  try {
    parsePlan(text, 'install.yaml')
  } catch (error) {
    assert.ok(error instanceof PlanError && error instanceof ConfigError)
    assert.equal(error.code, 'invalid_plan')
    return error.problems
  }
  return assert.fail('the plan was accepted')
}

function onlyStep(text: string): Plan['steps'][number] | undefined {
  return parsePlan(planWith(text), 'install.yaml').steps[0]
}

describe('parsePlan', () => {
  it('reads a complete plan', () => {
    const plan = parsePlan(FULL, 'install.yaml')
    assert.deepEqual([plan.formatVersion, plan.projectId, plan.version], ['1', 'my-plugin', '1.4.0'])
    assert.deepEqual(plan.steps[1], {
      id: 'files',
      action: 'install_plugin',
      plugin: 'my-plugin',
      snapshot: true,
      dependsOn: ['prepare'],
      file: 'install.yaml',
      line: 6,
      column: 5,
    })
    assert.deepEqual(plan.positions, {
      projectId: { file: 'install.yaml', line: 2, column: 13 },
      steps: { file: 'install.yaml', line: 4, column: 1 },
    })
  })

  const accepted: { name: string; step: string; expected: object }[] = [
    {
      name: 'prepare',
      step: '{id: a, action: prepare}',
      expected: { action: 'prepare', dependsOn: [], snapshot: false },
    },
    { name: 'download', step: '{id: a, action: download}', expected: { action: 'download' } },
    { name: 'extract', step: '{id: a, action: extract}', expected: { action: 'extract' } },
    { name: 'rollback', step: '{id: a, action: rollback}', expected: { action: 'rollback' } },
    { name: 'provision', step: '{id: a, action: provision, plugin: p}', expected: { plugin: 'p' } },
    {
      name: 'install_extension',
      step: '{id: a, action: install_extension, extension: e.1}',
      expected: { extension: 'e.1' },
    },
    { name: 'configure_plugin', step: '{id: a, action: configure_plugin, plugin: p}', expected: { plugin: 'p' } },
    {
      name: 'write_env',
      step: '{id: a, action: write_env, plugin: p, from: extensions/p/x/.env}',
      expected: { from: 'extensions/p/x/.env' },
    },
    { name: 'start for everything', step: '{id: a, action: start}', expected: { action: 'start' } },
    { name: 'stop for one', step: '{id: a, action: stop, plugin: p}', expected: { action: 'stop', plugin: 'p' } },
    {
      name: 'healthcheck with its defaults',
      step: '{id: a, action: healthcheck}',
      expected: { timeoutSeconds: 30, retries: 0 },
    },
    {
      name: 'healthcheck in minutes',
      step: '{id: a, action: healthcheck, timeout: 2m, retries: 20}',
      expected: { timeoutSeconds: 120, retries: 20 },
    },
    {
      name: 'healthcheck in seconds',
      step: '{id: a, action: healthcheck, timeout: 600}',
      expected: { timeoutSeconds: 600 },
    },
    {
      name: 'notify',
      step: '{id: a, action: notify, event: deployed, message: "It is up: ü"}',
      expected: { event: 'deployed', message: 'It is up: ü' },
    },
  ]
  for (const { name, step, expected } of accepted) {
    it(`reads ${name}`, () => assert.partialDeepStrictEqual(onlyStep(step), { id: 'a', ...expected }))
  }

  const fromOtherPackers = {
    'rollback with to': ['{id: a, action: rollback, to: "1.2.0"}', { action: 'rollback' }],
    'every key, most of them null':
      '{id: a, action: restart, plugin: p, extension: null, from: ~, event: , message: null, timeout: null, retries: null, source: null, depends_on: null, snapshot: null, to: null}',
    'an empty text for no plugin': '{id: a, action: restart, plugin: ""}',
    'a message that is null': '{id: a, action: notify, event: e, message: null}',
    'a truth value of YAML 1.1': ['{id: a, action: prepare, snapshot: yes}', { snapshot: true }],
    'another truth value of YAML 1.1': ['{id: a, action: prepare, snapshot: Off}', { snapshot: false }],
    'a number in quotes': ['{id: a, action: healthcheck, retries: "3"}', { retries: 3 }],
    'seconds in quotes': ['{id: a, action: healthcheck, timeout: "45"}', { timeoutSeconds: 45 }],
    'blanks around a time': ['{id: a, action: healthcheck, timeout: " 30s "}', { timeoutSeconds: 30 }],
    './ before a path': ['{id: a, action: write_env, plugin: p, from: ./plugins/p/.env}', { from: 'plugins/p/.env' }],
    './ inside a path': [
      '{id: a, action: write_env, plugin: p, from: plugins/./p/././.env}',
      { from: 'plugins/p/.env' },
    ],
  }
  for (const [name, written] of Object.entries(fromOtherPackers)) {
    const [step = '', expected = {}] = [written].flat() as [string, object?]
    it(`reads what other packers write: ${name}`, () => {
      assert.partialDeepStrictEqual(onlyStep(step), { id: 'a', ...expected })
      assert.equal(Object.values(onlyStep(step) ?? {}).includes(''), false)
    })
  }

  it('writes aliases out', () => {
    const { steps } = parsePlan(
      planWith(
        '{id: a, action: healthcheck, plugin: &id p, timeout: &t 2m}',
        '{id: b, action: healthcheck, plugin: *id, timeout: *t, depends_on: &first [a]}',
        '{id: c, action: stop, depends_on: *first}',
      ),
      'install.yaml',
    )
    assert.partialDeepStrictEqual(steps, [{}, { plugin: 'p', timeoutSeconds: 120 }, { dependsOn: ['a'] }])
  })

  it('gives a step only the keys that the plan contains', () => {
    assert.equal(Object.hasOwn(onlyStep('{id: a, action: start}') ?? {}, 'plugin'), false)
  })

  for (const written of ['1', '"1"', "'1'"]) {
    it(`accepts format_version: ${written}`, () => {
      assert.equal(parsePlan(FULL.replace('"1"', written), 'install.yaml').formatVersion, '1')
    })
  }

  const refusedSteps: { name: string; step: string; column: number }[] = [
    { name: 'an unknown action', step: '{id: a, action: run, command: [x]}', column: 21 },
    { name: 'an action in capitals', step: '{id: a, action: Start}', column: 21 },
    { name: 'a step without an action', step: '{id: a}', column: 5 },
    { name: 'an action that is a list', step: '{id: a, action: [start]}', column: 21 },
    { name: 'a step that is a word', step: 'prepare', column: 5 },
    { name: 'a step that is null', step: '~', column: 5 },
    { name: 'a step without an id', step: '{action: prepare}', column: 5 },
    { name: 'an id in capitals', step: '{id: A, action: prepare}', column: 10 },
    { name: 'an id with a dot', step: '{id: a.b, action: prepare}', column: 10 },
    { name: 'an id that is a number', step: '{id: 1, action: prepare}', column: 10 },
    { name: 'an id of 65 characters', step: `{id: ${'a'.repeat(65)}, action: prepare}`, column: 10 },
    { name: 'an unknown key', step: '{id: a, action: prepare, command: x}', column: 30 },
    { name: 'a key of another action', step: '{id: a, action: prepare, plugin: x}', column: 30 },
    { name: 'depends_on that is a word', step: '{id: a, action: prepare, depends_on: b}', column: 42 },
    { name: 'snapshot that is another word', step: '{id: a, action: prepare, snapshot: maybe}', column: 40 },
    { name: 'install_plugin without a plugin', step: '{id: a, action: install_plugin}', column: 5 },
    { name: 'a plugin that is a path', step: '{id: a, action: install_plugin, plugin: ../x}', column: 45 },
    { name: 'a required plugin that is null', step: '{id: a, action: provision, plugin: ~}', column: 40 },
    { name: 'an empty key that no action has', step: '{id: a, action: start, plugn: ~}', column: 28 },
    { name: 'retries in words', step: '{id: a, action: healthcheck, retries: "two"}', column: 43 },
    { name: '21 retries in quotes', step: '{id: a, action: healthcheck, retries: "21"}', column: 43 },
    { name: 'a message that is a date', step: '{id: a, action: notify, event: e, message: 2026-01-02}', column: 48 },
    { name: 'a merge key', step: '{id: a, action: prepare, <<: {snapshot: true}}', column: 30 },
    { name: 'an alias without an anchor', step: '{id: a, action: prepare, depends_on: *x}', column: 42 },
    { name: 'an alias inside its own anchor', step: '{id: a, action: prepare, depends_on: &x [*x]}', column: 46 },
    { name: 'a timeout of 0', step: '{id: a, action: healthcheck, timeout: 0}', column: 43 },
    { name: 'a timeout over 10 minutes', step: '{id: a, action: healthcheck, timeout: 601s}', column: 43 },
    { name: 'a timeout that is a word', step: '{id: a, action: healthcheck, timeout: soon}', column: 43 },
    { name: '21 retries', step: '{id: a, action: healthcheck, retries: 21}', column: 43 },
    { name: 'half a retry', step: '{id: a, action: healthcheck, retries: 0.5}', column: 43 },
    { name: 'a notify event with a space', step: '{id: a, action: notify, event: a b}', column: 36 },
    { name: 'a notify message of two lines', step: '{id: a, action: notify, event: e, message: "a\\nb"}', column: 48 },
    {
      name: 'a notify message with an escape',
      step: '{id: a, action: notify, event: e, message: "\\e[1m"}',
      column: 48,
    },
    {
      name: 'a notify message of 501 characters',
      step: `{id: a, action: notify, event: e, message: ${'x'.repeat(501)}}`,
      column: 48,
    },
    { name: 'a step that depends on itself', step: '{id: a, action: prepare, depends_on: [a]}', column: 43 },
    { name: 'an unknown dependency', step: '{id: a, action: prepare, depends_on: [b]}', column: 43 },
  ]
  for (const { name, step, column } of refusedSteps) {
    it(`refuses ${name} at its position`, () => {
      const problems = problemsOf(planWith(step))
      assert.deepEqual(
        problems.map(at => [at.file, at.line, at.column]),
        [['install.yaml', 5, column]],
      )
    })
  }

  const refusedTemplates = {
    'an absolute path': '/etc/passwd',
    'a path outside plugins and extensions': 'x/.env',
    'the directory itself': 'plugins/p',
    'the directory with a slash': 'plugins/p/',
    'a parent in the middle': 'plugins/p/../../.env',
    'a parent at the end': 'plugins/p/..',
    'a dot at the end': 'plugins/p/.',
    'an empty component': 'plugins/p//x',
    'a backslash': 'plugins/p/..\\x',
    'a line break': '"plugins/p/x\\n"',
    'an id in capitals': 'plugins/P/x',
    'a parent in place of an id': 'plugins/../x',
    'a path that is too long': `plugins/p/${'x'.repeat(4096)}`,
  }
  for (const [name, from] of Object.entries(refusedTemplates)) {
    it(`refuses this path of a template: ${name}`, () => {
      assert.equal(problemsOf(planWith(`{id: a, action: write_env, plugin: p, from: ${from}}`)).length, 1)
    })
  }

  for (const from of ['plugins/p/..env', 'plugins/p/a..b/c', 'plugins/p/.env']) {
    it(`accepts a template at ${from}`, () => {
      assert.partialDeepStrictEqual(onlyStep(`{id: a, action: write_env, plugin: p, from: ${from}}`), { from })
    })
  }

  const refusedPlans: { name: string; text: string; at: [number, number] }[] = [
    { name: 'an empty text', text: '', at: [1, 1] },
    { name: 'a text with only a comment', text: '# nothing', at: [1, 1] },
    { name: 'a list', text: '- a', at: [1, 1] },
    { name: 'another format', text: FULL.replace('"1"', '"2"'), at: [1, 17] },
    { name: 'a version that YAML 1.1 reads as a date', text: FULL.replace('1.4.0', '2026-01-02'), at: [3, 10] },
    { name: 'a version that YAML reads as a number', text: FULL.replace('1.4.0', '1.10'), at: [3, 10] },
    { name: 'a version with a space', text: FULL.replace('1.4.0', '1.4 beta'), at: [3, 10] },
    { name: 'a project_id with a slash', text: FULL.replace('my-plugin', '../x'), at: [2, 13] },
    { name: 'an unknown key of the plan', text: `${FULL}env: {}\n`, at: [10, 1] },
    { name: 'an empty list of steps', text: 'format_version: 1\nproject_id: p\nversion: a\nsteps: []', at: [4, 8] },
    { name: 'steps that are a map', text: 'format_version: 1\nproject_id: p\nversion: a\nsteps: {}', at: [4, 8] },
    { name: 'a missing key', text: 'format_version: 1\nversion: a\nsteps: [{id: a, action: prepare}]', at: [1, 1] },
    { name: 'an id used twice', text: planWith('{id: a, action: prepare}', '{id: a, action: extract}'), at: [6, 10] },
    { name: 'an unknown tag', text: FULL.replace('1.4.0', '!!js/function 1.4.0'), at: [3, 10] },
  ]
  for (const { name, text, at } of refusedPlans) {
    it(`refuses ${name} at its position`, () => {
      assert.deepEqual(
        problemsOf(text).map(({ line, column }) => [line, column]),
        [at],
      )
    })
  }

  it('names a complete cycle', () => {
    const [problem, ...rest] = problemsOf(
      planWith(
        '{id: a, action: prepare, depends_on: [b]}',
        '{id: b, action: prepare, depends_on: [c]}',
        '{id: c, action: prepare, depends_on: [a]}',
      ),
    )
    assert.deepEqual([problem?.line, problem?.column, rest.length], [7, 43, 0])
    assert.match(problem?.message ?? '', /a → b → c → a/)
  })

  it('reports text, schema and graph problems at once, in the order of the file', () => {
    const text = planWith(
      '{id: a, action: restrat, snapshot: 1, depends_on: [d]}',
      '{id: a, id: b, action: prepare, depends_on: [b]}',
      '{id: c, action: start, plugn: p, depends_on: [nope, d]}',
      '{id: d, action: !x stop, depends_on: [c]}',
      '{action: prepare, depends_on: [cc]}',
    )
    assert.deepEqual(
      problemsOf(text).map(({ line }) => line),
      [5, 5, 6, 6, 7, 7, 7, 8, 9, 9],
    )
  })

  it('states the number of problems and the first of them', () => {
    assert.throws(() => parsePlan(planWith('{id: a, action: x}', '{id: b, action: y}'), 'my.yaml'), {
      message: /2 problems.*my\.yaml, line 5, column 21/,
    })
  })

  it('suggests the intended word', () => {
    const messages = problemsOf(
      planWith('{id: up, action: restrat}', '{id: b, action: stop, plugn: p, depends_on: [upp]}'),
    )
    assert.deepEqual(
      messages.map(({ message }) => /did you mean "(.+)"\?/.exec(message)?.[1]),
      ['restart', 'plugin', 'up'],
    )
  })

  it('lists the possible actions along with the intended one', () => {
    const [problem] = problemsOf(planWith('{id: up, action: restrat}'))
    for (const action of ['restart', 'prepare', 'write_env']) assert.ok(problem?.message.includes(action), action)
  })

  it('cleans the text that it quotes', () => {
    const text = planWith('{id: "x\\n::error::", action: "a\\r##[group]", "k\\n::y": 1}')
    for (const { message } of problemsOf(text)) assert.doesNotMatch(message, /[\r\n]/)
  })

  const CROWDED = {
    'an unknown key': `unknown: 1\n${planWith(...Array.from({ length: 150 }, () => '{id: 1, action: prepare}'))}`,
    'an unknown dependency': planWith(
      '{id: a, action: prepare, depends_on: [b]}',
      ...Array.from({ length: 150 }, () => '{id: a, action: prepare}'),
    ),
  }
  for (const [name, text] of Object.entries(CROWDED)) {
    it(`reports ${name} at the beginning, before a hundred other problems`, () => {
      const [first] = problemsOf(text)
      assert.match(first?.message ?? '', /unknown key "unknown"|which is not in this plan/)
    })
  }

  const floods = {
    'unknown keys': `{${Array.from({ length: 20_000 }, (_, i) => `k${i}: 1`).join(', ')}}`,
    'unknown dependencies': planWith(
      `{id: a, action: prepare, depends_on: [${Array.from({ length: 30_000 }, (_, i) => `d${i}`)}]}`,
    ),
    'bad steps': planWith(...Array.from({ length: 20_000 }, () => '{id: 1}')),
  }
  for (const [name, text] of Object.entries(floods)) {
    it(`reports problems in a flood of ${name}`, () => assert.ok(problemsOf(text).length > 0))
  }
})

describe('the longest plan', () => {
  it('is parsed with many pauses, so that a cancel is noticed', () => {
    const head = 'format_version: "1"\nproject_id: a\nversion: 1.0.0\nsteps:\n'
    const steps = Array.from(
      { length: 3600 },
      (_, index) => `  - {id: s${index}, action: notify, event: deployed, message: hello}\n`,
    )
    const text = head + steps.join('')
    assert.ok(text.length > 200_000 && text.length <= 256 * 1024)
    assert.ok([...parsePlanSlowly(text, 'install.yaml')].length > 200)
  })
})

/** Steps s0, s1, ... in any order, each depending only on steps with smaller numbers. */
const acyclicSteps: fc.Arbitrary<DependentStep[]> = fc
  .integer({ min: 0, max: 30 })
  .chain(count =>
    fc.tuple(
      ...Array.from({ length: count }, (_, i) =>
        fc.uniqueArray(fc.nat(Math.max(i - 1, 0)), { maxLength: Math.min(i, 5) }),
      ),
    ),
  )
  .map(lists => lists.map((list, i) => ({ id: `s${i}`, dependsOn: list.map(n => `s${n}`) })))
  .chain(steps => fc.shuffledSubarray(steps, { minLength: steps.length }))

function step(id: string, ...dependsOn: string[]): DependentStep {
  return { id, dependsOn }
}

function idsOf(steps: readonly DependentStep[]): string {
  return steps.map(({ id }) => id).join(' ')
}

const orders: { name: string; steps: DependentStep[]; expected: string }[] = [
  { name: 'no steps for an empty plan', steps: [], expected: '' },
  {
    name: 'steps without dependencies in the order of the plan',
    steps: [step('c'), step('a'), step('b')],
    expected: 'c a b',
  },
  {
    name: 'a dependency just before the step that needs it',
    steps: [step('x'), step('b', 'a'), step('y'), step('a')],
    expected: 'x a b y',
  },
  {
    name: 'dependencies in the order in which they are listed',
    steps: [step('d', 'b', 'a'), step('a'), step('b')],
    expected: 'b a d',
  },
  {
    name: 'each step of a diamond once',
    steps: [step('d', 'b', 'c'), step('b', 'a'), step('c', 'a'), step('a')],
    expected: 'a b c d',
  },
]

describe('orderSteps', () => {
  for (const { name, steps, expected } of orders) {
    it(`returns ${name}`, () => assert.equal(idsOf(orderSteps({ steps })), expected))
  }

  it('puts every dependency before the steps that need it, and loses no step', () => {
    fc.assert(
      fc.property(acyclicSteps, steps => {
        const order = orderSteps({ steps })
        const place = new Map(order.map(({ id }, index) => [id, index]))
        assert.deepEqual(new Set(order), new Set(steps))
        assert.equal(order.length, steps.length)
        for (const { id, dependsOn } of steps) {
          for (const dependency of dependsOn) assert.ok((place.get(dependency) ?? Infinity) < (place.get(id) ?? -1))
        }
      }),
    )
  })

  it('does not change an order that already fits', () => {
    fc.assert(
      fc.property(acyclicSteps, steps => {
        const order = orderSteps({ steps })
        assert.deepEqual(orderSteps({ steps: order }), order)
      }),
    )
  })

  it('orders a chain of 10,000 steps written backwards', () => {
    const chain = Array.from({ length: 10_000 }, (_, i) => (i === 0 ? step('s0') : step(`s${i}`, `s${i - 1}`)))
    assert.deepEqual(orderSteps({ steps: chain.toReversed() }), chain)
  })
})

const cycles: { name: string; steps: DependentStep[]; expected: string[] }[] = [
  { name: 'no cycle in a plan without one', steps: [step('a'), step('b', 'a')], expected: [] },
  { name: 'a cycle of two steps', steps: [step('a', 'b'), step('b', 'a')], expected: ['a b a'] },
  {
    name: 'a cycle of three steps, without the steps that lead to it',
    steps: [step('x', 'a'), step('a', 'b'), step('b', 'c'), step('c', 'a')],
    expected: ['a b c a'],
  },
  {
    name: 'two separate cycles',
    steps: [step('a', 'b'), step('b', 'a'), step('c', 'd'), step('d', 'c')],
    expected: ['a b a', 'c d c'],
  },
  {
    name: 'two cycles that share a step',
    steps: [step('a', 'b', 'c'), step('b', 'a'), step('c', 'a')],
    expected: ['a b a', 'a c a'],
  },
  {
    name: 'no cycle in a step that depends on itself or on an unknown step',
    steps: [step('a', 'a', 'zz')],
    expected: [],
  },
]

describe('findCycles', () => {
  for (const { name, steps, expected } of cycles) {
    it(`finds ${name}`, () =>
      assert.deepEqual(
        findCycles(steps).map(({ ids }) => ids.join(' ')),
        expected,
      ))
  }

  it('says which entry closes the cycle', () => {
    const [cycle] = findCycles([step('a', 'x', 'b'), step('b', 'x', 'a'), step('x')])
    assert.deepEqual([cycle?.step.id, cycle?.entry], ['b', 1])
  })

  it('finds no cycle where steps depend only on steps with smaller numbers', () => {
    fc.assert(fc.property(acyclicSteps, steps => assert.deepEqual(findCycles(steps), [])))
  })

  it('finds the one cycle in a ring of steps', () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 50 }), count => {
        const ring = Array.from({ length: count }, (_, i) => step(`s${i}`, `s${(i + 1) % count}`))
        assert.deepEqual(
          findCycles(ring).map(({ ids }) => ids),
          [[...ring.map(({ id }) => id), 's0']],
        )
      }),
    )
  })

  it('does not list every cycle of a dense plan', () => {
    const names = Array.from({ length: 300 }, (_, i) => `s${i}`)
    assert.ok(findCycles(names.map(name => step(name, ...names))).length <= 20)
  })
})
