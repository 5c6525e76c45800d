import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { availableParallelism, cpus, release, totalmem, type } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { findProgram } from '../local/find-program.ts'
import type { Artifact } from './workloads.ts'

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

export interface HubProcess {
  /** The base URL that serves the artifact of this name. */
  urlOf(name: string): string
  stop(): Promise<void>
}

/**
 * Serves the artifacts on loopback, from a separate process, so that serving costs every contender the same. Rejects if
 * that process ends before it listens.
 */
export async function startHub(artifacts: Readonly<Record<string, Artifact>>, folder: string): Promise<HubProcess> {
  const catalogue = join(folder, 'catalogue.json')
  writeFileSync(catalogue, JSON.stringify(artifacts))
  const child = spawn(process.execPath, [join(import.meta.dirname, 'hub.ts'), catalogue], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const url = await firstLineOf(child)
  return {
    urlOf: name => `${url}/${name}`,
    async stop() {
      child.kill()
      await exited
    },
  }
}

/** Waits for the first line that a hub prints, which says where it listens. Rejects if the hub ends before that. */
export async function firstLineOf(hub: ChildProcess & { readonly stdout: Readable }): Promise<string> {
  const ended = once(hub, 'exit').then(([code, signal]) => {
    throw new Error(`The hub ended with ${signal ?? `exit code ${code}`} before it listened.`)
  })
  const [line] = await Promise.race([once(createInterface(hub.stdout), 'line') as Promise<[string]>, ended])
  return line
}
