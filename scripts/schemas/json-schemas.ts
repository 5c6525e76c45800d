import { type JSONSchema, toJSONSchema } from 'zod/v4/core'
import { ACTIONS } from '../../src/core/plan/action.ts'
import { hostConfigSchema } from '../../src/core/plan/host-config-schema.ts'
import { planSchema } from '../../src/core/plan/plan.ts'
import { ACTION_HELP, HOST_CONFIG_HELP, PLAN_HELP } from './help.ts'

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
