import { z } from 'zod'

/** The keys that `schema` knows for the map at `path`; none where there is no such map. */
export function keysOfSchema(schema: unknown, path: readonly PropertyKey[]): string[] {
  if (schema instanceof z.ZodObject) {
    const [key, ...rest] = path
    return key === undefined ? Object.keys(schema.shape) : keysOfSchema(schema.shape[String(key)], rest)
  }
  if (schema instanceof z.ZodRecord) return keysOfSchema(schema.valueType, path.slice(1))
  return isWrapper(schema) ? keysOfSchema(schema.unwrap(), path) : []
}

function isWrapper(schema: unknown): schema is { unwrap(): unknown } {
  return typeof schema === 'object' && schema !== null && 'unwrap' in schema
}
