import type { z } from 'zod/mini'

/** Returns the keys that `schema` accepts in the map at `path`; none if the schema has no map at this path. */
export function keysOfSchema(schema: z.core.$ZodType | undefined, path: readonly PropertyKey[]): string[] {
  const { def } = (schema as z.core.$ZodTypes | undefined)?._zod ?? {}
  switch (def?.type) {
    case 'object': {
      const [key, ...rest] = path
      return key === undefined ? Object.keys(def.shape) : keysOfSchema(def.shape[String(key)], rest)
    }
    case 'record':
      return keysOfSchema(def.valueType, path.slice(1))
    case 'lazy':
      return keysOfSchema(def.getter(), path)
    case 'optional':
    case 'default':
    case 'prefault':
      return keysOfSchema(def.innerType, path)
    default:
      return []
  }
}
