import assert from 'node:assert/strict'
import { after, before, describe, it } from 'node:test'
import { copyBuild, copyHost } from '../harness/prepared-host.ts'
import { filesWith, openProjectStage, type ProjectStage } from '../harness/project-stage.ts'
import { writeFiles } from '../harness/stage.ts'
import { NAME_CALLS, openTraces, type TracedCall, type Traces, whyNoStrace } from '../harness/strace.ts'

const STARTS = ['clone', 'clone3', 'fork', 'vfork']
const CONTENT = ['open', 'openat', 'read', 'pread64', 'readv', 'write', 'pwrite64', 'writev', 'getdents64']
const CALLS = [...NAME_CALLS, ...CONTENT, ...STARTS]
/** Steps of the plan that neither start a process nor change the host. */
const STEPS = ['action: prepare', 'action: configure_plugin, plugin: cart']
const PARTS = ['plugins/cart', 'plugins/till', 'extensions/mailer']

describe('an update of a project of several parts, in the order of its calls,', { skip: whyNoStrace() }, () => {
  let stage: ProjectStage
  let traces: Traces<ReturnType<typeof copyHost>>
  let calls: readonly TracedCall[]
  /** The calls from the first rename of a tree to the last one. */
  let window: readonly TracedCall[]

  before(async () => {
    stage = await openProjectStage()
    traces = openTraces()
    const repository = copyBuild(stage)
    await stage.publish('1.0.0', filesWith('1.0.0'))
    assert.equal((await stage.deploy({}, { repository })).exitCode, 0)
    writeFiles(stage.root, { 'plugins/cart/data/orders': '17\n', 'extensions/mailer/data/queue': '17 letters\n' })
    await stage.publish('2.0.0', filesWith('2.0.0', { steps: STEPS }))
    const host = copyHost({ stage, repository, root: stage.root, inputs: { version: '2.0.0' } }, 'traced')
    const traced = await traces.run(host, (on, run) => on.deploy({}, run), { calls: CALLS })
    assert.equal(traced.result.outputs['outcome'], 'success', traced.result.log)
    calls = traced.calls.map(call => ({ ...call, args: call.args.replaceAll(`${host.root}/`, '<root>/') }))
    const [first, last] = [calls.findIndex(isOldTree), calls.findLastIndex(isNewTree)]
    assert.ok(first !== -1 && first < last)
    window = calls.slice(first, last + 1)
  })

  after(async () => {
    traces.close()
    await stage.close()
  })

  it('makes all staged trees durable with one syncfs, before anything is moved', () => {
    const synced = calls.filter(({ name }) => name === 'syncfs')
    assert.deepEqual(
      synced.map(({ args }) => /staging\/[^/]+\//.test(args)),
      [true],
    )
    assert.ok(calls.indexOf(synced[0] as TracedCall) < calls.indexOf(window[0] as TracedCall))
  })

  it('moves all old trees away, then the kept paths, then all new trees into their places', () => {
    const moves = window.filter(({ name, result }) => /^rename/.test(name) && !result.startsWith('-1'))
    const kinds = moves.map(call => (isOldTree(call) ? 'old' : isNewTree(call) ? 'new' : 'kept'))
    assert.deepEqual(kinds, [...PARTS.map(() => 'old'), 'kept', 'kept', ...PARTS.map(() => 'new')])
  })

  it('reads and writes only its journal between the first of these moves and the last', () => {
    const others = window.filter(call => isOfContent(call) && !/journal\.jsonl/.test(call.args))
    assert.deepEqual(
      others.map(({ text }) => text),
      [],
    )
  })

  it('starts no process between the first of these moves and the last', () => {
    assert.deepEqual(
      window.filter(({ role }) => role === 'child').map(({ text }) => text),
      [],
    )
  })
})

function isOldTree({ name, args, result }: TracedCall): boolean {
  return /^rename/.test(name) && /"<root>\/(plugins|extensions)\/\w+".*snapshots\//.test(args) && result === '0'
}

function isNewTree({ name, args, result }: TracedCall): boolean {
  return /^rename/.test(name) && /, "<root>\/(plugins|extensions)\/\w+"$/.test(args) && result === '0'
}

/**
 * True for a call that opens any file, or that reads or writes a file or lists a directory below the root. Opening a
 * directory does not count, because the run opens directories to sync them.
 */
function isOfContent({ name, args }: TracedCall): boolean {
  if (/^open/.test(name)) return !/O_DIRECTORY/.test(args)
  if (!args.includes('<root>')) return false
  return /read|write|getdents/.test(name)
}
