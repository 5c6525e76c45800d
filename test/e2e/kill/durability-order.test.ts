import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs'
import { delimiter, dirname, join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { listTree } from '../../folders.ts'
import { NAME_CALLS, openTraces, type TracedCall, type Traces, whyNoStrace } from '../harness/strace.ts'
import { openSweepHosts, type SweepHost, type SweepHosts } from '../harness/sweep-hosts.ts'

const CALLS = [...NAME_CALLS, 'write', 'pwrite64', 'openat']

/** An event on a host, with paths relative to the project root. */
type Event =
  | { kind: 'syncfs' | 'sync'; path: string }
  | { kind: 'rename' | 'link'; from: string; to: string }
  | { kind: 'remove'; path: string }
  | { kind: 'record'; text: string }
  | { kind: 'output'; text: string }

describe('an update, in the order of its calls,', { skip: whyNoStrace() }, () => {
  let hosts: SweepHosts
  let traces: Traces
  let update: { events: readonly Event[]; host: SweepHost }
  let withoutSync: { events: readonly Event[]; host: SweepHost }

  before(async () => {
    hosts = await openSweepHosts()
    traces = openTraces()
    update = await traceUpdate('update', {})
    withoutSync = await traceUpdate('without-sync', { PATH: failingSync(hosts.copy('tools').workspace.temp) })
  })

  after(async () => {
    traces.close()
    await hosts.close()
  })

  it('makes the staged tree durable with one syncfs before anything is moved', () => {
    const { events } = update
    const synced = indexOf(events, event => event.kind === 'syncfs' && /staging\/[^/]+\/tree$/.test(event.path))
    assert.ok(synced < indexOf(events, isMove))
  })

  it('syncs every staged file and directory before anything is moved if sync -f fails', () => {
    const { events, host } = withoutSync
    const firstMove = indexOf(events, isMove)
    const synced = events.slice(0, firstMove).flatMap(event => (event.kind === 'sync' ? [event.path] : []))
    assert.deepEqual(
      stagedPaths(host).filter(path => !synced.some(other => other.endsWith(`/tree${path}`))),
      [],
    )
  })

  it('writes and syncs the announcement of a change before the change', () => {
    for (const { events } of [update, withoutSync]) {
      const moves = events.filter(isChange)
      assert.equal(moves.length, 5)
      for (const move of moves) {
        const [at, announced] = [events.indexOf(move), indexOf(events, event => isAnnouncement(event, move))]
        assert.ok(announced < at, `the move to ${move.to} must be announced before it is made`)
        assert.ok(
          events.slice(announced, at).some(isJournalSync),
          `the announcement of ${move.to} must be durable before the move`,
        )
      }
    }
  })

  it('syncs the directories of a change before the next record', () => {
    for (const { events } of [update, withoutSync]) {
      for (const move of events.filter(isChange)) {
        const at = events.indexOf(move)
        const next = events.findIndex((event, index) => index > at && event.kind === 'record')
        const synced = events.slice(at, next).flatMap(event => (event.kind === 'sync' ? [event.path] : []))
        const folders = move.kind === 'link' ? [dirname(move.to)] : [dirname(move.to), dirname(move.from)]
        for (const folder of folders)
          assert.ok(
            synced.includes(folder),
            `${folder} must be synced after the move to ${move.to}, before the next record`,
          )
      }
    }
  })

  it('syncs the directory of each of its own files that it replaces', () => {
    for (const { events } of [update, withoutSync]) {
      const replaced = events.flatMap(event => (event.kind === 'rename' && isOwnFile(event) ? [event] : []))
      assert.ok(replaced.length >= 3)
      for (const rename of replaced) {
        const at = events.indexOf(rename)
        const before = events.slice(0, at)
        assert.ok(
          before.some(event => event.kind === 'sync' && event.path === rename.from),
          `${rename.from} must be synced before it becomes ${rename.to}`,
        )
        // Other syncs may come before the sync of the directory, but no other event may.
        const next = events.findIndex((event, index) => index > at && !isSync(event))
        const synced = events.slice(at, next).flatMap(event => (event.kind === 'sync' ? [event.path] : []))
        assert.ok(
          synced.includes(dirname(rename.to)),
          `${dirname(rename.to)} must be synced after the rename to ${rename.to}`,
        )
      }
    }
  })

  it('commits durably before it removes anything old and before it sets the outputs of the success', () => {
    for (const { events } of [update, withoutSync]) {
      const commit = indexOf(events, event => event.kind === 'record' && event.text.includes('"record":"commit"'))
      const durable = events.findIndex((event, index) => index > commit && isJournalSync(event))
      const succeeded = indexOf(events, event => event.kind === 'output' && event.text.includes('success'))
      const discarded = indexOf(events, event => event.kind === 'rename' && event.to.includes('/trash/'))
      const recorded = indexOf(events, event => event.kind === 'rename' && event.to.endsWith('/installed.json'))
      // A tree is removed through descriptors, so the path of a removal does not name the tree.
      const removed = indexOf(events, event => event.kind === 'remove' && event.path.endsWith('/plugin.yaml'))
      for (const later of [succeeded, discarded, recorded, removed]) assert.ok(commit < durable && durable < later)
    }
  })

  it('makes durable that the oldest snapshot and the staged files have left before it removes the journal', () => {
    for (const { events } of [update, withoutSync]) {
      const ended = indexOf(events, event => event.kind === 'remove' && event.path.endsWith('/journal.jsonl'))
      const before = events.slice(0, ended).flatMap(event => (event.kind === 'rename' ? [event] : []))
      const left = before.filter(({ to }) => to.includes('/trash/'))
      assert.equal(left.length, 2)
      for (const rename of left) {
        const later = events.slice(events.indexOf(rename), ended)
        for (const folder of [dirname(rename.from), dirname(rename.to)])
          assert.ok(
            later.some(event => event.kind === 'sync' && event.path === folder),
            `${folder} must be synced after ${rename.from} has left it, before the journal is removed`,
          )
      }
    }
  })

  it('syncs the directories for a kept path that appears after the tree was made durable', async () => {
    const host = hosts.copy('late')
    const tools = standInForSync(
      host.workspace.temp,
      `mkdir -p ${host.root}/plugins/greeter/deep/er/kept; ${realSync()} "$@"`,
    )
    const act = (on: SweepHost, run: Partial<ActionRun>) =>
      on.deploy({ settings: 'GREETER_TOKEN=of this host', 'keep-paths': 'data\n.env\ndeep/er/kept' }, run)
    const { result, calls } = await traces.run(host, act, { calls: CALLS, textLimit: 100_000 }, { PATH: tools })
    assertSuccess(result)
    const events = eventsIn(calls, host.root)
    const moved = indexOf(events, event => event.kind === 'rename' && event.to.endsWith('/kept'))
    const tree = indexOf(events, event => event.kind === 'syncfs' && event.path.endsWith('/tree'))
    const synced = events.slice(tree + 1, moved).flatMap(event => (event.kind === 'sync' ? [event.path] : []))
    for (const folder of [/\/tree$/, /\/tree\/deep$/])
      assert.ok(
        synced.some(path => folder.test(path)),
        `a path that matches ${folder} must be synced before the kept path is moved`,
      )
  })

  async function traceUpdate(name: string, env: Record<string, string>): Promise<typeof update> {
    const host = hosts.copy(name)
    const tracing = { calls: CALLS, textLimit: 100_000 }
    const { result, calls } = await traces.run(host, (on, run) => on.update(run), tracing, env)
    assertSuccess(result)
    return { host, events: eventsIn(calls, host.root) }
  }
})

function assertSuccess({ outputs, log }: ActionResult): void {
  assert.equal(outputs['outcome'], 'success', log)
}

/** A PATH with a `sync` that fails. */
function failingSync(parent: string): string {
  return standInForSync(parent, 'exit 1')
}

function realSync(): string {
  return execFileSync('sh', ['-c', 'command -v sync'], { encoding: 'utf8' }).trim()
}

/** A PATH with this script as its `sync`. */
function standInForSync(parent: string, script: string): string {
  const folder = join(parent, 'bin')
  mkdirSync(folder)
  writeFileSync(join(folder, 'sync'), `#!/bin/sh\n${script}\n`)
  chmodSync(join(folder, 'sync'), 0o755)
  return [folder, process.env['PATH']].join(delimiter)
}

/** The paths of the staged tree: all paths of the new tree but the host's kept paths. The root is the empty path. */
function stagedPaths({ root }: SweepHost): string[] {
  const paths = Object.keys(listTree(join(root, 'plugins/greeter')))
  return ['', ...paths.filter(path => !/^(data|\.env)(\/|$)/.test(path)).map(path => `/${path}`)]
}

function eventsIn(calls: readonly TracedCall[], root: string): Event[] {
  const descriptors = new Map<string, string>()
  return calls.flatMap(call => eventsOf(call, root, descriptors))
}

/** `descriptors` has the paths of the descriptors that earlier calls opened, and gets those of this call. */
function eventsOf({ name, args, result }: TracedCall, root: string, descriptors: Map<string, string>): Event[] {
  if (result.startsWith('-1')) return []
  if (name === 'openat') {
    const [, fd = '', path = ''] = /^(\d+)<(.*)>$/.exec(result) ?? []
    descriptors.set(fd, path)
    return []
  }
  const paths = [...args.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, path = '']) =>
    path.replace(/^\/proc\/self\/fd\/(\d+)/, (link, fd) => descriptors.get(fd) ?? link).replace(`${root}/`, ''),
  )
  const open = /^\d+<([^>]*)>/.exec(args)?.[1]?.replace(`${root}/`, '') ?? ''
  if (/^(fsync|fdatasync)$/.test(name)) return [{ kind: 'sync', path: open }]
  if (name === 'syncfs') return [{ kind: 'syncfs', path: open }]
  if (/^rename/.test(name)) return [{ kind: 'rename', from: paths[0] ?? '', to: paths[1] ?? '' }]
  if (/^link/.test(name)) return [{ kind: 'link', from: paths[0] ?? '', to: paths[1] ?? '' }]
  if (/^(unlink|rmdir)/.test(name)) return [{ kind: 'remove', path: paths[0] ?? '' }]
  if (/write/.test(name) && open.endsWith('journal.jsonl')) return [{ kind: 'record', text: unquote(args) }]
  if (/write/.test(name) && open.endsWith('/output')) return [{ kind: 'output', text: unquote(args) }]
  return []
}

function unquote(args: string): string {
  return args.replaceAll('\\"', '"')
}

function isMove(event: Event): boolean {
  return event.kind === 'rename' && !event.from.endsWith('.tmp') && !isJournal(event) && !isStandIn(event)
}

/**
 * True for a move or a link of the switch. False for the moves of the action's own records and of trees that are no
 * longer used.
 */
function isChange(event: Event): event is Extract<Event, { to: string }> {
  if (event.kind !== 'rename' && event.kind !== 'link') return false
  return !event.from.endsWith('.tmp') && !event.to.includes('/trash/') && !isJournal(event) && !isStandIn(event)
}

/** True for the moves of an empty directory, which inherits from a shelf, to its path in the staging folder. */
function isStandIn({ from }: { from: string }): boolean {
  return /\/_hub-deploy-|\.shelf\//.test(from)
}

/** True for a rename that gives a complete file of the action its name. */
function isOwnFile({ from }: { from: string; to: string }): boolean {
  return from.endsWith('.tmp')
}

function isJournal({ to }: { to: string }): boolean {
  return to.endsWith('/journal.jsonl')
}

function isAnnouncement(event: Event, { to }: { to: string }): boolean {
  return event.kind === 'record' && /"record":"changes?"/.test(event.text) && event.text.includes(`"${to}"`)
}

function isSync(event: Event): boolean {
  return event.kind === 'sync' || event.kind === 'syncfs'
}

function isJournalSync(event: Event): boolean {
  return event.kind === 'sync' && event.path.endsWith('journal.jsonl')
}

function indexOf(events: readonly Event[], isWanted: (event: Event) => boolean): number {
  const index = events.findIndex(isWanted)
  assert.notEqual(index, -1, `no event matches ${isWanted}`)
  return index
}
