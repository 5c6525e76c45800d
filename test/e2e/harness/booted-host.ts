import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { TestContext } from 'node:test'
import { waitUntil } from '../../clocks.ts'

const REPOSITORY = resolve(import.meta.dirname, '../../..')
/** The arguments of setpriv that start a container that ends with this process. */
const CONTAINER = [
  '--pdeathsig',
  'KILL',
  'unshare',
  '--mount',
  '--pid',
  '--cgroup',
  '--ipc',
  '--uts',
  '--fork',
  '--kill-child',
]
const IMPOSSIBLE = 77

/** The systemd targets that the boot and the units need. */
const TARGETS = {
  'multi-user.target': '[Unit]\nAllowIsolate=yes\n',
  'basic.target': '[Unit]\nDefaultDependencies=no\nRequires=sysinit.target\nAfter=sysinit.target\n',
  'sysinit.target': '[Unit]\nDefaultDependencies=no\n',
  'shutdown.target': '[Unit]\nDefaultDependencies=no\n',
}

/** A machine that boots with systemd as PID 1. All of its own files are below `folder`. */
export interface Machine {
  readonly folder: string
  readonly units: Readonly<Record<string, string>>
  /** Units to enable before the boot. */
  readonly enable: readonly string[]
}

export interface Booted {
  /**
   * Waits until the text of a file in `folder` ends with a line break, and returns the text. Throws if the machine ends
   * first: a `NoBoot`, which `withMachines` expects, if this computer cannot boot systemd in a container.
   */
  read(name: string): Promise<string>
  /** Ends every process of the machine at once, as a power cut does. */
  cutPower(): Promise<void>
}

/** Thrown if this computer cannot boot systemd in a container. */
class NoBoot extends Error {}

/** Runs a test that boots machines. Skips it if this computer can boot none. */
export async function withMachines(t: TestContext, test: () => Promise<void>): Promise<void> {
  try {
    await test()
  } catch (error) {
    if (!(error instanceof NoBoot)) throw error
    t.skip(error.message)
  }
}

export function boot({ folder, units, enable }: Machine): Booted {
  const unitFolder = join(folder, 'units')
  rmSync(unitFolder, { recursive: true, force: true })
  mkdirSync(unitFolder)
  for (const [name, text] of Object.entries({ ...TARGETS, ...units })) writeFileSync(join(unitFolder, name), text)
  const script = join(import.meta.dirname, 'boot.sh')
  const machine = spawn('setpriv', [...CONTAINER, 'sh', script], {
    env: { FOLDER: folder, UNITS: unitFolder, REPOSITORY, ENABLE: enable.join(' '), PATH: process.env['PATH'] },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const output = collect(machine)
  let failure: Error | undefined
  machine.once('error', error => {
    failure = new NoBoot(`setpriv: ${error.message}`)
  })
  machine.once('exit', (code, signal) => {
    const isImpossible = code === IMPOSSIBLE || /^(?:unshare|setpriv):/.test(output())
    failure ??= isImpossible
      ? new NoBoot(output())
      : new Error(`The booted machine ended with ${signal ?? `exit code ${code}`}. Its output: ${output()}`)
  })
  return {
    async read(name) {
      const path = join(folder, name)
      const hasText = () => existsSync(path) && readFileSync(path, 'utf8').endsWith('\n')
      await waitUntil(`${name} is written`, () => failure !== undefined || hasText())
      if (!hasText() && failure !== undefined) throw failure
      return readFileSync(path, 'utf8')
    },
    async cutPower() {
      if (failure !== undefined) return
      const ended = once(machine, 'exit')
      machine.kill('SIGKILL')
      await ended
    },
  }
}

function collect(child: ChildProcess): () => string {
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', more => (text += more))
  return () => text
}
