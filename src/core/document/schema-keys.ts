import type { z } from 'zod/mini'

/** Returns the keys that `schema` lists for the map at `path`; none if the schema lists no keys there. */
export function keysOfSchema(schema: z.core.$ZodType | undefined, path: readonly PropertyKey[]): string[] {
  const { def } = (schema as z.core.$ZodTypes | undefined)?._zod ?? {}
  switch (def?.type) {
    case 'object': {
      const [key, ...rest] = path
      if (key === undefined) return Object.keys(def.shape)
      return Object.hasOwn(def.shape, key) ? keysOfSchema(def.shape[String(key)], rest) : []
    }
    case 'record':
      return path.length === 0 ? [] : keysOfSchema(def.valueType, path.slice(1))
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
