import { type JSONSchema, toJSONSchema } from 'zod/v4/core'
import { hostConfigSchema } from '../src/core/plan/host-config.ts'
import { planSchema } from '../src/core/plan/plan.ts'
import { ACTIONS } from '../src/core/plan/step.ts'

type JsonSchema = JSONSchema.JSONSchema

/**
 * Builds the text of each JSON Schema from the schemas that the actions parse with. The keys are paths in the
 * repository.
 */
export function buildJsonSchemas(): Record<string, string> {
  return {
    'schemas/install-plan.schema.json': textOf(buildPlanSchema()),
    'schemas/host-config.schema.json': textOf(buildHostConfigSchema()),
  }
}

function buildPlanSchema(): JsonSchema {
  const schema = explained(convert(planSchema), PLAN_HELP)
  const steps = requireSchema(schema, ['properties', 'steps'])
  steps.items = stepByAction(requireSchema(steps, ['items']).oneOf ?? [])
  return titled('Hub Deploy: install plan', schema)
}

/**
 * Applies each form of a step only to steps with its action. With `oneOf` instead, an editor would explain the wrong
 * form of a step.
 */
function stepByAction(forms: readonly JsonSchema[]): JsonSchema {
  const { id = {}, action = {} } = requireSchema(forms[0] ?? {}, ['properties']) as Record<string, JsonSchema>
  const { description = '' } = action
  return {
    type: 'object',
    required: ['id', 'action'],
    properties: { id, action: { enum: [...ACTIONS], description } },
    allOf: forms.map(form => ({
      if: { properties: { action: requireSchema(form, ['properties', 'action']) }, required: ['action'] },
      // biome-ignore lint/suspicious/noThenProperty: it is a keyword of JSON Schema
      then: { ...form, description: actionsOf(form).map(helpOf).join(' ') },
    })),
  }
}

function actionsOf(step: JsonSchema): string[] {
  const { const: only, enum: several } = requireSchema(step, ['properties', 'action'])
  return (several ?? [only]).map(String)
}

function helpOf(action: string): string {
  const help = ACTION_HELP[action]
  if (help === undefined) throw new Error(`There is no help for the action ${action}.`)
  return `${action}: ${help}`
}

function buildHostConfigSchema(): JsonSchema {
  const schema = explained(convert(hostConfigSchema), HOST_CONFIG_HELP)
  const check = requireSchema(schema, ['properties', 'plugins', 'additionalProperties', 'properties', 'healthcheck'])
  // The actions check these rules with functions, which a JSON Schema cannot contain.
  check.oneOf = ['http', 'tcp', 'command'].map(name => ({ required: [name] }))
  check['dependencies'] = { status: ['http'], body: ['http'] }
  return titled('Hub Deploy: host config', schema)
}

function titled(title: string, { $schema, ...schema }: JsonSchema): JsonSchema {
  return { ...($schema === undefined ? {} : { $schema }), title, ...schema }
}

/**
 * Converts to draft 7, which editors support best. With `input`, the schema describes the file, not the parsed value.
 */
function convert(schema: typeof planSchema | typeof hostConfigSchema): JsonSchema {
  return toJSONSchema(schema, { target: 'draft-7', io: 'input', unrepresentable: 'any' })
}

/** Adds the help for every key. Throws if a key has no help, or if there is help for a key that does not exist. */
function explained(schema: JsonSchema, help: Readonly<Record<string, string>>): JsonSchema {
  const unused = new Set(Object.keys(help))
  explain(schema, '', path => {
    unused.delete(path)
    return help[path]
  })
  if (unused.size > 0) throw new Error(`There is help for names that are not keys: ${[...unused].join(', ')}.`)
  return schema
}

function explain(schema: JsonSchema, path: string, helpFor: (path: string) => string | undefined): void {
  const at = (name: string): string => (path === '' ? name : `${path}.${name}`)
  for (const [name, property] of Object.entries(schema.properties ?? {}) as [string, JsonSchema][]) {
    const help = helpFor(at(name))
    if (help === undefined) throw new Error(`There is no help for ${at(name)}.`)
    property.description = help
    explain(property, at(name), helpFor)
  }
  for (const branch of (schema.oneOf ?? []) as JsonSchema[]) explain(branch, path, helpFor)
  for (const each of [schema.items, schema.additionalProperties])
    if (typeof each === 'object' && !Array.isArray(each)) explain(each as JsonSchema, at('*'), helpFor)
}

function requireSchema(schema: JsonSchema, path: readonly string[]): JsonSchema {
  const found = path.reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], schema)
  if (typeof found !== 'object' || found === null) throw new Error(`The schema has nothing at ${path.join('.')}.`)
  return found as JsonSchema
}

function textOf(schema: JsonSchema): string {
  const portable = (key: string, value: unknown): unknown =>
    key === 'pattern' && typeof value === 'string' ? withRanges(value) : value
  return `${JSON.stringify(schema, portable, 2)}\n`
}

/** The characters of each category that our patterns name, as they are written inside brackets. */
const RANGES: Readonly<Record<string, string>> = {
  Cc: '\\u0000-\\u001f\\u007f-\\u009f',
  Zl: '\\u2028',
  Zp: '\\u2029',
}

/** Replaces `\p{...}`, because validators in some other languages, such as Python, do not know it. */
function withRanges(pattern: string): string {
  return pattern.replace(/\\p\{(\w+)\}/gi, (written, category: string) => {
    const range = written.startsWith('\\p') ? RANGES[category] : undefined
    if (range === undefined) throw new Error(`RANGES has no entry for ${written} of the pattern ${pattern}.`)
    return range
  })
}

/**
 * The help that an editor shows for each key of a plan and a host config; `*` stands for any item or name. The zod
 * schemas do not contain this help, because the actions would then load it in every run.
 */
type Help = Readonly<Record<string, string>>

const PLAN_HELP: Help = {
  format_version: 'Always "1".',
  project_id: 'The slug of the plugin or service that this plan installs; for a project, its id.',
  version: 'The version of the plan itself; informative.',
  steps: 'What the deployment does. The steps run in this order, but the steps that a step depends on run before it.',
  'steps.*.id': 'Names the step in the log, the summary and the output failed-step; unique in the plan.',
  'steps.*.action': 'What the step does. No action runs a command of the plan.',
  'steps.*.depends_on': 'Ids of steps that run before this one.',
  'steps.*.snapshot': 'true on any step keeps the replaced version of each part as a snapshot after a success.',
  'steps.*.plugin':
    'The id of a plugin or service, which is the name of its directory in plugins/ or extensions/. If the action allows a step without plugin, that step works on everything that the plan installs, or on the project-wide unit of the host.',
  'steps.*.extension': 'The id of the service, which is the name of its directory in extensions/.',
  'steps.*.source': 'Only in a project: the source of a part that the project does not contain.',
  'steps.*.from': 'The template in the artifact: plugins/<id>/... or extensions/<id>/...',
  'steps.*.timeout': 'Limit for one attempt, like 30, 30s or 2m; from 1s to 10m, by default 30s.',
  'steps.*.retries': 'The number of further attempts after the first one fails.',
  'steps.*.to': 'Ignored: a run that fails restores the version that was installed before it.',
  'steps.*.event': 'The name under which the host config has a command in notify.',
  'steps.*.message': 'One line of text; the command gets it in NOTIFY_MESSAGE.',
}

const ACTION_HELP: Help = {
  prepare: 'does nothing; a run prepares the host even without this step.',
  download: 'does nothing; a deployment fetches and verifies the artifact even without this step.',
  extract:
    'does nothing; a deployment extracts the artifact even without this step, unless the plugin or service is already installed from the same artifact and intact.',
  rollback: 'does nothing; a run that fails rolls its changes back even without this step.',
  provision: 'runs the command of the host config for this id, for example to create a database.',
  install_plugin: 'installs the new version as plugins/<id>/.',
  install_extension: 'installs the new version of a service as extensions/<id>/.',
  configure_plugin: 'does nothing; other steps can depend on it.',
  write_env: 'creates the settings file from a template in the artifact; never changes an existing one.',
  start: 'starts the service with the supervisor of the host.',
  stop: 'stops the service with the supervisor of the host.',
  restart: 'restarts the service with the supervisor of the host.',
  healthcheck: 'waits until the installed part (without plugin, every part) is running and healthy.',
  notify: 'runs the command of the host config for this event; if the command fails, the run logs a warning.',
}

const COMMAND = 'The program and its arguments, as a list. It runs without a shell.'
const COMMAND_ENV = 'Additional environment variables for the command.'

const HOST_CONFIG_HELP: Help = {
  version: 'Always 1.',
  supervisor:
    'The supervisor of the services on this host. none skips start, stop and restart steps, and healthcheck steps for which there is no check; without this key, a plan with such steps is refused.',
  systemd: 'The names of the systemd units.',
  'systemd.scope': 'system, or user for the units of the user that the runner runs as.',
  'systemd.unit': 'The unit of a plugin or service; {id} stands for its id.',
  'systemd.project_unit': 'The unit for steps without plugin.',
  docker: 'The names of the Docker containers.',
  'docker.container': 'The container of a plugin or service; {id} stands for its id.',
  kubernetes: 'The names of the Kubernetes deployments.',
  'kubernetes.namespace': 'The namespace of the deployments.',
  'kubernetes.deployment': 'The deployment of a plugin or service; {id} stands for its id.',
  'kubernetes.kubeconfig': 'The kubeconfig file, as for kubectl --kubeconfig.',
  'kubernetes.context': 'The context in the kubeconfig file, as for kubectl --context.',
  plugins: 'Settings for individual plugins and services, by id.',
  'plugins.*.unit': 'The unit for this id, in place of systemd.unit.',
  'plugins.*.container': 'The container for this id, in place of docker.container.',
  'plugins.*.deployment': 'The deployment for this id, in place of kubernetes.deployment.',
  'plugins.*.healthcheck': 'How to check the health of the plugin or service: exactly one of http, tcp and command.',
  'plugins.*.healthcheck.http': 'The URL that must answer with the expected status.',
  'plugins.*.healthcheck.tcp': 'The address (host:port) that must accept a connection.',
  'plugins.*.healthcheck.command': `${COMMAND} The check passes if it exits with 0.`,
  'plugins.*.healthcheck.status': 'The expected HTTP status, by default 200.',
  'plugins.*.healthcheck.body':
    'Text that the response must contain; {version} stands for the version that is checked, so that an old process does not pass.',
  'plugins.*.healthcheck.interval': 'The time between two probes, like 1, 1s or 1m; by default 1s.',
  'plugins.*.healthcheck.stable_for':
    'How long all probes must pass; it must be shorter than the timeout of the healthcheck step.',
  framework: 'The host framework that loads the plugins.',
  'framework.version':
    'Its version, in quotes, to which the framework_version of each plugin.yaml is compared; a warning says if it differs.',
  provision: 'The commands for provision steps, by id.',
  'provision.*.command': `${COMMAND} It gets the id as its last argument.`,
  'provision.*.env': COMMAND_ENV,
  'provision.*.timeout': 'How long the command may take, like 30, 30s or 5m; from 1s to 1h, by default 5m.',
  notify: 'The commands for notify steps, by event.',
  'notify.*.command': `${COMMAND} It gets the event and the message in NOTIFY_EVENT and NOTIFY_MESSAGE.`,
  'notify.*.env': COMMAND_ENV,
  'notify.*.timeout': 'How long the command may take, like 30 or 30s; from 1s to 10m, by default 30s.',
}
