import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { ActionRun } from '../../../local/runner.ts'
import type { JournalRecord } from '../../../src/install/journal/records.ts'
import type { Fleet, PreparedHost } from './prepared-host.ts'
import { standIn } from './processes.ts'
import {
  cancelAndBlock,
  ONE_WORKER,
  readTrace,
  type SystemCall,
  tamper,
  tamperWithRecord,
  traceCommand,
} from './strace.ts'
import { forEver, openGate, type Route } from './untrusted-hub.ts'

/** Inputs and settings that make a run end or fail at one specific point. */
export interface Stopped {
  inputs?: Record<string, string>
  run: Partial<ActionRun>
}

export interface Stop {
  needsTracing: boolean
  prepare(t: TestContext, host: PreparedHost, fleet: Fleet): Stopped | Promise<Stopped>
}

/** Kills the run from outside while it waits for the hub's answer to a request. */
export function killAtRequest(route: Route): Stop {
  return {
    needsTracing: false,
    async prepare(t, _host, fleet) {
      let pid: number | undefined
      const gate = await openGate(t, fleet.stage.hub.url, asked => {
        if (asked !== route || pid === undefined) return undefined
        process.kill(pid, 'SIGKILL')
        pid = undefined
        return forEver()
      })
      return {
        inputs: { 'hub-url': gate.url },
        run: {
          onStart(started) {
            pid ??= started
          },
        },
      }
    },
  }
}

/**
 * Replaces the child that makes the staged tree durable with a script that kills or disturbs the run. `$2` is that
 * tree.
 */
export function inSync(script: string): Stop {
  return { needsTracing: false, prepare: t => ({ run: { env: { PATH: standIn(t, 'sync', script) } } }) }
}

/**
 * Kills the run right before it writes its first journal record of that name. By then, every change that earlier
 * records announce has been made.
 */
export function killBefore(record: RecordName, version?: string): Stop {
  return tamperBefore(record, 'signal=KILL', version)
}

/** Sends SIGINT to the run as it writes its first journal record of that name. The write itself still succeeds. */
export function cancelBefore(record: RecordName): Stop {
  return tamperBefore(record, 'signal=INT')
}

/** Sends SIGINT as `cancelBefore` does, and makes the rollback hang. */
export function cancelBeforeAndBlockUndo(record: RecordName): Stop {
  return {
    needsTracing: true,
    async prepare(_t, host, fleet) {
      const place = join(host.root, 'plugins/greeter')
      const undo = (await countRenames(fleet)) + 1
      return { run: cancelAndBlock(host.root, { place, undo, record: await findRecord(fleet, record) }) }
    },
  }
}

/** Makes the write of the first journal record of that name fail. */
export function failToWrite(record: RecordName): Stop {
  return tamperBefore(record, 'error=ENOSPC')
}

/** Kills the run right before its nth system call `call` on `path`, which is relative to `.hub-deploy/`. */
export function killAtCall(path: string, call: string, nth = 1): Stop {
  return {
    needsTracing: true,
    prepare: (_t, host) => ({ run: tamper(join(host.root, '.hub-deploy', path), call, 'signal=KILL', nth) }),
  }
}

/** Kills the run right before it replaces a file below `.hub-deploy/` with the file's new content. */
export function killBeforeReplacing(path: string): Stop {
  const preload = join(import.meta.dirname, 'kill-before-rename.mjs')
  return {
    needsTracing: false,
    prepare: (_t, host) => ({
      run: { env: { NODE_OPTIONS: `--import=${preload}`, KILL_BEFORE: join(host.root, '.hub-deploy', path) } },
    }),
  }
}

/** Kills a recovery right before it writes its nth journal record. */
export function killRecoveryBefore(nth: number): Stop {
  return { needsTracing: true, prepare: (_t, host) => ({ run: tamperWithRecord(host.root, nth, 'signal=KILL') }) }
}

/** `state <name>`, `step <id>`, `change <target>` with `*` for the deployment's id, or just the kind of the record. */
type RecordName = string

function tamperBefore(record: RecordName, how: string, version?: string): Stop {
  return {
    needsTracing: true,
    async prepare(_t, host, fleet) {
      return { run: tamperWithRecord(host.root, await findRecord(fleet, record, version), how) }
    },
  }
}

/** The number of a record in the journal of an undisturbed run. The second record of the journal has number 1. */
async function findRecord(fleet: Fleet, record: RecordName, version?: string): Promise<number> {
  const nth = (await readRecordNames(fleet, version)).indexOf(record)
  if (nth < 1) throw new Error(`An undisturbed run writes no record "${record}" after its first record.`)
  return nth
}

let renames: Promise<number> | undefined

/** The number of renames of the installed directory to another path in an undisturbed run, including probes. */
function countRenames(fleet: Fleet): Promise<number> {
  renames ??= traceUndisturbed(fleet, { paths: ['plugins/greeter'], calls: ['rename'] }).then(calls => calls.length)
  return renames
}

/** The calls of an undisturbed run that touch these paths, which are relative to the project root. */
async function traceUndisturbed(
  fleet: Fleet,
  { paths, calls }: { paths: readonly string[]; calls: readonly string[] },
): Promise<SystemCall[]> {
  const host = fleet.newHost(`census-of-${calls.join('-')}`)
  const log = join(host.workspace.temp, 'trace')
  const below = paths.map(path => join(host.root, path))
  await host.deploy({}, { through: traceCommand({ log, paths: below, calls, textLimit: 200 }), env: ONE_WORKER })
  return readTrace(log).filter(({ name }) => name !== 'execve')
}

const censuses = new Map<string, Promise<RecordName[]>>()

/**
 * The names of all journal records of an update to that version. They are read from the journal of a run that is killed
 * right before it removes the journal.
 */
function readRecordNames(fleet: Fleet, version = '2.0.0'): Promise<RecordName[]> {
  const known = censuses.get(version)
  if (known !== undefined) return known
  const host = fleet.newHost(`census-of-${version}`)
  const removal = tamper(join(host.root, '.hub-deploy/journal.jsonl'), 'unlink', 'signal=KILL')
  const names = host.deploy({ version }, removal).then(() => host.journal().map(nameOf))
  censuses.set(version, names)
  return names
}

function nameOf(record: JournalRecord): RecordName {
  switch (record.record) {
    case 'state':
      return `state ${record.state}`
    case 'step':
      return `step ${record.id}`
    case 'change': {
      const { change } = record
      const target = change.type === 'move' ? change.to : change.path
      return `change ${target.replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/, '*')}`
    }
    default:
      return record.record
  }
}
