import { availableParallelism, cpus, release, totalmem, type } from 'node:os'
import { findPython, firstLine } from './programs.ts'

/** The facts about this machine that explain the figures, one per line. */
export function machineFacts(): string[] {
  const programs = [
    firstLine('bash', ['--version']),
    firstLine('curl', ['--version']),
    firstLine('openssl', ['version']),
  ]
  const python = findPython()
  return [
    `${cpus()[0]?.model ?? 'unknown processor'}, ${availableParallelism()} cores, ${Math.round(totalmem() / 1e9)} GB of memory`,
    `${type()} ${release()}, Node.js ${process.version}`,
    [...programs, python && firstLine(python, ['--version'])]
      .map(line => line && shorten(line))
      .filter(line => line !== undefined)
      .join(', '),
  ]
}

function shorten(version: string): string {
  return /^.*?\d[\w.]*/.exec(version)?.[0] ?? version
}
