import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parsePlan, requireWorkablePlan } from '../../../hub/project/plan.ts'
import { parseManifest } from '../../../src/core/content/manifest.ts'
import { BUNDLED_PLAN_LIMITS } from '../../../src/core/identifiers.ts'
import { bindPlanToProject, verifySources } from '../../../src/core/plan/binding.ts'
import { parsePlan as parseOnHost } from '../../../src/core/plan/plan.ts'
import { verifyTemplates } from '../../../src/core/plan/ready.ts'
import { PLAN_HEAD } from './project-source.ts'

const SHA256 = 'ab'.repeat(32)
const MANIFEST = parseManifest(
  JSON.stringify({
    format_version: '1',
    project_id: 'shop',
    project_name: 'Shop',
    version: '1.0.0',
    built_at: '2026-01-02T03:04:05Z',
    plugins_dirname: 'add/ons',
    plugins: [
      { id: 'cart', version: '1.0.0', sha256: SHA256 },
      { id: 'till', version: '1.0.0', source: { marketplace_slug: 'till' } },
      { id: 'x.env', version: '1.0.0', sha256: SHA256 },
      { id: 'both', version: '1.0.0', sha256: SHA256 },
    ],
    extensions: [{ id: 'mailer' }, { id: 'both' }],
    content_sha256: SHA256,
  }),
)
const FILES = ['add/ons/cart/.env.template', 'extensions/mailer/.env.template']

/** Reads and binds the plan as a deployment does. */
function deploy(text: string): void {
  const plan = parseOnHost(text, 'install.yaml', BUNDLED_PLAN_LIMITS)
  const { steps } = bindPlanToProject(plan, MANIFEST)
  verifySources(steps, MANIFEST)
  verifyTemplates(
    steps,
    [],
    from => from.startsWith('plugins/till/') || FILES.includes(from.replace(/^plugins/, 'add/ons')),
  )
}

/** Reads and binds the plan as publishing does. */
function publish(text: string): void {
  requireWorkablePlan(parsePlan(text), 'shop', {
    pluginsDirname: 'add/ons',
    plugins: MANIFEST.parts.filter(({ shelf }) => shelf === 'plugins').map(({ folder }) => folder),
    extensions: MANIFEST.parts.filter(({ shelf }) => shelf === 'extensions').map(({ folder }) => folder),
    sourced: new Set(['add/ons/till']),
    isFile: path => FILES.includes(path),
    absence: () => 'does not exist',
  })
}

const CART = '{id: cart, action: install_plugin, plugin: cart}'
const of = (...steps: string[]): string =>
  `${PLAN_HEAD}steps:\n${[CART, ...steps].map(step => `  - ${step}\n`).join('')}`
const after = (step: string): string => of(`{id: b, depends_on: [cart], ${step}}`)

const ACCEPTED: Readonly<Record<string, string>> = {
  'one step': of(),
  'every action': of(
    '{id: a, action: prepare}',
    '{id: b, action: download}',
    '{id: c, action: extract, depends_on: [b]}',
    '{id: d, action: rollback, to: previous}',
    '{id: e, action: provision, plugin: cart}',
    '{id: f, action: install_extension, extension: mailer, snapshot: true}',
    '{id: g, action: configure_plugin, plugin: cart}',
    '{id: h, action: write_env, plugin: cart, from: plugins/cart/.env.template, depends_on: [cart]}',
    '{id: i, action: stop}',
    '{id: j, action: start, plugin: mailer, depends_on: [f]}',
    '{id: k, action: restart, depends_on: [cart, f]}',
    '{id: l, action: healthcheck, plugin: cart, timeout: 2m, retries: 3, depends_on: [cart]}',
    '{id: m, action: notify, event: deployed, message: done}',
  ),
  'the number 1 as format_version': of().replace('"1"', '1'),
  'null at every key that may be absent': after(
    'action: restart, plugin: cart, extension: null, from: ~, event: , message: null, timeout: null, retries: null, source: null, snapshot: null, to: null',
  ),
  'an empty list of dependencies that is null': of('{id: b, action: prepare, depends_on: null}'),
  'an empty text for no plugin': after('action: restart, plugin: ""'),
  'a message that is null': of('{id: b, action: notify, event: e, message: null}'),
  'yes, On and FALSE': of(
    ...['yes', 'On', 'FALSE', '"true"'].map((word, n) => `{id: s${n}, action: prepare, snapshot: ${word}}`),
  ),
  'a number of retries in quotes': after('action: healthcheck, retries: "3"'),
  'a time with blanks': after('action: healthcheck, timeout: " 30s "'),
  'seconds in quotes': after('action: healthcheck, timeout: "45"'),
  './ in a path': after('action: write_env, plugin: cart, from: ./plugins/./cart/.env.template'),
  "the archive's own name of the plugins": after('action: write_env, plugin: cart, from: add/ons/cart/.env.template'),
  anchors: of(
    '{id: &b b, action: healthcheck, timeout: &t 2m, depends_on: &d [cart]}',
    '{id: c, action: healthcheck, timeout: *t, depends_on: *d}',
  ),
  '100 aliases': of(
    '{id: b, action: prepare, depends_on: [&x cart]}',
    `{id: c, action: prepare, depends_on: [${'*x, '.repeat(100)}]}`,
  ),
  'a template of a part from elsewhere': of(
    '{id: till, action: install_plugin, plugin: till, source: {marketplace_slug: till}}',
    '{id: b, action: write_env, plugin: till, from: plugins/till/.env.template, depends_on: [till]}',
  ),
  'a byte order mark': `\ufeff${of()}`,
  'a plan with Windows line endings': of().replaceAll('\n', '\r\n'),
  'steps in any order': of('{id: b, action: prepare, depends_on: [z]}', '{id: z, action: prepare}'),
}

const REFUSED: Readonly<Record<string, string>> = {
  'no format_version': of().replace(/^.*\n/, ''),
  'another format_version': of().replace('"1"', '"2"'),
  'a version that YAML 1.1 reads as a date': of().replace('version: 1.0.0', 'version: 2026-01-02'),
  'a version that is a number': of().replace('version: 1.0.0', 'version: 1.0'),
  'no version': of().replace('version: 1.0.0\n', ''),
  'another project': of().replace('shop', 'blog'),
  'an unknown key': `${of()}env: {}\n`,
  'no steps': `${PLAN_HEAD}steps: []\n`,
  'a step that is a word': of('prepare'),
  'an unknown action': of('{id: b, action: run}'),
  'an unknown key of a step': of('{id: b, action: prepare, command: x}'),
  'an unknown key that is null': of('{id: b, action: prepare, command: null}'),
  'a key of another action': of('{id: b, action: prepare, plugin: cart}'),
  'a missing id': of('{action: prepare}'),
  'an id in capitals': of('{id: B, action: prepare}'),
  'a repeated id': of('{id: cart, action: prepare}'),
  'an unknown dependency': of('{id: b, action: prepare, depends_on: [c]}'),
  'a step that waits for itself': of('{id: b, action: prepare, depends_on: [b]}'),
  'steps that wait for each other': of(
    '{id: b, action: prepare, depends_on: [c]}',
    '{id: c, action: prepare, depends_on: [b]}',
  ),
  'a dependency that is not in a list': of('{id: b, action: prepare, depends_on: cart}'),
  'another word for a truth value': of('{id: b, action: prepare, snapshot: maybe}'),
  yeS: of('{id: b, action: prepare, snapshot: yeS}'),
  'a required plugin that is null': of('{id: b, action: provision, plugin: null}'),
  'a plugin that is a path': of('{id: b, action: start, plugin: ../cart}'),
  'a time of 0': after('action: healthcheck, timeout: 0s'),
  'a time that is too long': after('action: healthcheck, timeout: 11m'),
  'a time that is true': after('action: healthcheck, timeout: true'),
  'half a second': after('action: healthcheck, timeout: 0.5'),
  '21 retries': after('action: healthcheck, retries: "21"'),
  'an event with a blank': of('{id: b, action: notify, event: a b}'),
  'a message of two lines': of('{id: b, action: notify, event: e, message: "a\\nb"}'),
  'a message of 501 characters': of(`{id: b, action: notify, event: e, message: ${'x'.repeat(501)}}`),
  'a message that is a date': of('{id: b, action: notify, event: e, message: 2026-01-02}'),
  'a template that is not there': after('action: write_env, plugin: cart, from: plugins/cart/.env'),
  'a template outside its part': after('action: write_env, plugin: cart, from: plugins/cart/../x'),
  'a template with an empty name': after('action: write_env, plugin: cart, from: plugins/cart//.env.template'),
  'a template of a part that is not installed': after(
    'action: write_env, plugin: cart, from: extensions/mailer/.env.template',
  ),
  'a template from the other shelf': of(
    '{id: mailer, action: install_extension, extension: mailer}',
    '{id: b, action: write_env, plugin: cart, from: extensions/mailer/.env.template, depends_on: [mailer, cart]}',
  ),
  'a part that is not there': of('{id: b, action: install_plugin, plugin: nothing}'),
  'a plugin as an extension': of('{id: b, action: install_extension, extension: till}'),
  'a part that is installed twice': of('{id: b, action: install_plugin, plugin: cart}'),
  'an id on both shelves': of(
    '{id: b, action: install_plugin, plugin: both}',
    '{id: c, action: install_extension, extension: both}',
  ),
  'an id that ends in .env': of('{id: b, action: install_plugin, plugin: x.env}'),
  'nothing to install': `${PLAN_HEAD}steps: [{id: a, action: prepare}]\n`,
  'a restart of a part that it does not install': of('{id: b, action: restart, plugin: mailer}'),
  'a provision for a part that is not there': of('{id: b, action: provision, plugin: nothing}'),
  'a restart before the files': `${PLAN_HEAD}steps: [{id: b, action: restart, plugin: cart}, ${CART}]\n`,
  'a check of everything before the files': `${PLAN_HEAD}steps: [{id: b, action: healthcheck}, ${CART}]\n`,
  'a source that the manifest does not repeat': `${PLAN_HEAD}steps: [${CART.replace('}', ', source: {marketplace_slug: x}}')}]\n`,
  'a source in a step that installs nothing': of('{id: b, action: restart, source: {marketplace_slug: x}}'),
  'a repeated key': of('{id: b, id: c, action: prepare}'),
  'a merge key': of('{id: b, action: prepare, <<: {snapshot: true}}'),
  'a key that is a list': of('{id: b, action: prepare, ? [x] : 1}'),
  'the key __proto__': of('{id: b, action: prepare, __proto__: {}}'),
  'an alias as a key': of('{id: &b b, action: prepare, *b : 1}'),
  'an alias without an anchor': of('{id: b, action: prepare, depends_on: *x}'),
  'an alias inside its own anchor': of('{id: b, action: prepare, depends_on: &x [*x]}'),
  '101 aliases': of(
    '{id: b, action: prepare, depends_on: [&x cart]}',
    `{id: c, action: prepare, depends_on: [${'*x, '.repeat(101)}]}`,
  ),
  'aliases that multiply a list': of(
    `{id: b, action: prepare, depends_on: &x [${'cart,'.repeat(1000)}]}`,
    ...Array.from({ length: 60 }, (_, n) => `{id: c${n}, action: prepare, depends_on: *x}`),
  ),
  'a tag': of('{id: b, action: !run prepare}'),
  'a directive': `%YAML 1.1\n---\n${of()}`,
  'a second document': `${of()}---\na: 1\n`,
  'a control character': of('{id: b, action: prepare} # \u0007'),
  'a lone carriage return': of('{id: b, action: prepare} # \rx'),
  'too many levels': `${of()}x: ${'['.repeat(40)}\n`,
  'too many bytes': `${of()}#${'x'.repeat(65_536)}\n`,
  'too many words': `${of()}# x\n${'- \n'.repeat(16_000)}`,
  'text that is not YAML': 'a: [',
  nothing: '',
}

describe('a plan that the hub publishes', () => {
  for (const [name, text] of Object.entries(ACCEPTED)) {
    it(`may have ${name}, as deployments accept`, () => {
      deploy(text)
      publish(text)
    })
  }

  for (const [name, text] of Object.entries(REFUSED)) {
    it(`never has ${name}, which deployments refuse`, () => {
      assert.throws(() => deploy(text), { code: 'invalid_plan' })
      assert.throws(() => publish(text), { name: 'HubError', status: 400 })
    })
  }
})
