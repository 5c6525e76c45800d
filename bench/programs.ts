import { spawnSync } from 'node:child_process'
import { findProgram } from '../local/find-program.ts'

export function isInstalled(program: string): boolean {
  return findProgram(program) !== undefined
}

/**
 * Returns the interpreter itself, because a version manager's shim on PATH would slow each start by a tenth of a
 * second.
 */
export function findPython(): string | undefined {
  return firstLine('python3', ['-c', 'import sys; print(sys.executable)'])
}

export function hasPythonModule(name: string): boolean {
  const python = findPython()
  return python !== undefined && spawnSync(python, ['-c', `import ${name}`]).status === 0
}

/** The first line that a program prints; undefined if the program is missing or fails. */
export function firstLine(program: string, args: readonly string[]): string | undefined {
  const { status, stdout, stderr } = spawnSync(program, args, { encoding: 'utf8' })
  return status === 0 ? (stdout || stderr).split('\n')[0]?.trim() : undefined
}
