import { dirname, join } from 'node:path'

/** An import or export at the start of a line. Between its keyword and `from` are only names and comments. */
const STATEMENT = /^(?:import|export)\b(?:[\w$*{},\s]|\/\/.*)*?(?:\bfrom|(?<=^import))\s*'(?<from>[^'\n]+)'/gm
/** At run time or in a type. */
const EXPRESSION = /\bimport\('(?<from>[^'\n]+)'\)/g

/** The path of each file, with the paths and packages that it imports. */
export type Imports = ReadonlyMap<string, readonly string[]>

/** Finds the imports of each file, of types included. Paths are relative to the same folder as the files' own. */
export function importsIn(files: readonly (readonly [file: string, text: string])[]): Imports {
  return new Map(
    files.map(([file, text]) => {
      const names = [...text.matchAll(STATEMENT), ...text.matchAll(EXPRESSION)].map(
        ({ groups }) => groups?.['from'] ?? '',
      )
      return [file, [...new Set(names)].map(name => (name.startsWith('.') ? join(dirname(file), name) : name))]
    }),
  )
}
