import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, unlinkSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { isOnOneMachine } from '../../../src/install/host/kernel-lock.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { readOwnIdentity } from '../../../src/install/host/process-identity.ts'
import { mountMemory, whyNoMounting } from '../../e2e/harness/mounts.ts'
import { missingTools, whyRightsAreLeftToCi } from '../../extent.ts'
import { temporaryDirectory } from '../../folders.ts'
import { holdElsewhere, rewriteHolder } from './held-elsewhere.ts'

const OTHER_MACHINE = 'f'.repeat(32)
const HOLDER_ID = '0b3a8a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
const NOBODY = 2 ** 31 - 1
/** When `unshare` is killed, the processes in its namespaces may end a moment later. */
const LONG_MS = 60_000
const noFlock = missingTools('flock')
const own = readOwnIdentity()

async function assertTaken(path: string, timeoutMs = 0): Promise<void> {
  const lock = await acquireLock({ path, timeoutMs, runUrl: null, log: () => {} })
  assert.equal(JSON.parse(readFileSync(path, 'utf8')).pid, process.pid)
  lock.release()
}

async function assertHeld(path: string): Promise<void> {
  await assert.rejects(acquireLock({ path, timeoutMs: 0, runUrl: null, log: () => {} }), { code: 'locked' })
}

/** Hides all programs from this process and its children until the test ends. */
function hidePrograms(t: TestContext): void {
  const path = process.env['PATH']
  process.env['PATH'] = '/nonexistent'
  t.after(() => {
    process.env['PATH'] = path
  })
}

describe('the lock of a killed process', { skip: noFlock }, () => {
  const circumstances: Record<string, Record<string, unknown>> = {
    'as that process left it': {},
    'in a container that was replaced': { hostname: 'f00d', pid_namespace: 'pid:[1]' },
    'in a container whose namespace number and pid another process now has': { ...own, hostname: 'f00d' },
    'on a host that was rebooted and renamed since': { hostname: 'formerly', boot_id: 'former' },
    'on a host without a machine id that was rebooted and renamed since': {
      hostname: 'formerly',
      boot_id: 'former',
      machine_id: null,
    },
  }
  for (const [where, changes] of Object.entries(circumstances)) {
    it(`${where} is taken over at once`, async t => {
      const folder = temporaryDirectory(t)
      if (changes['machine_id'] === null && !isOnOneMachine(folder)) return t.skip('the file system may be shared')
      const path = join(folder, 'lock')
      const holder = await holdElsewhere(t, path)
      await holder.kill()
      rewriteHolder(path, changes)
      await assertTaken(path)
    })
  }

  it('is not confused with the lock of a process whose kernel lock is on a removed file', async t => {
    const path = join(temporaryDirectory(t), 'lock')
    await holdElsewhere(t, path)
    rewriteHolder(path, { hostname: 'f00d' })
    unlinkSync(join(path, '../kernel-lock'))
    await assertHeld(path)
  })
})

describe('the lock of a live process', { skip: noFlock }, () => {
  const files: Record<string, (path: string) => void> = {
    'as if before the last boot of a host with the same name': path => rewriteHolder(path, { boot_id: 'former' }),
    'as if by a process that has ended': path => rewriteHolder(path, { pid: NOBODY }),
    'as an empty file': path => writeFileSync(path, ''),
    'or removed': path => rmSync(path),
  }
  for (const [how, change] of Object.entries(files)) {
    it(`is left alone even if its file was rewritten ${how}`, async t => {
      const path = join(temporaryDirectory(t), 'lock')
      await holdElsewhere(t, path)
      change(path)
      await assertHeld(path)
    })
  }
})

describe('a lock without a kernel lock', () => {
  const holder = { id: HOLDER_ID, ...own, kernel_lock: null, run_url: null, deployment: null, since: 'yesterday' }
  const files: Record<string, { written: object; isTaken: boolean; skip?: string | false }> = {
    'of a live process': { written: holder, isTaken: false },
    'of a process that has ended': { written: { ...holder, pid: NOBODY }, isTaken: true },
    'of a process that has ended on another machine': {
      written: { ...holder, pid: NOBODY, machine_id: OTHER_MACHINE },
      isTaken: false,
    },
    'of an earlier boot of this machine': {
      written: { ...holder, boot_id: 'former' },
      isTaken: true,
      skip: own.machine_id === null && 'this machine has no machine id',
    },
    'of an earlier boot of this machine, under another name': {
      written: { ...holder, boot_id: 'former', hostname: 'formerly' },
      isTaken: false,
    },
    'of a machine with the same name': {
      written: { ...holder, boot_id: 'other', machine_id: OTHER_MACHINE },
      isTaken: false,
    },
    'of a machine with the same name and no id': {
      written: { ...holder, boot_id: 'other', machine_id: null },
      isTaken: false,
    },
    'of a container': { written: { ...holder, pid: NOBODY, pid_namespace: 'pid:[1]' }, isTaken: false },
  }
  for (const [whose, { written, isTaken, skip = false }] of Object.entries(files)) {
    for (const tool of ['with', 'without']) {
      it(`${whose} is ${isTaken ? 'taken over' : 'left alone'} ${tool} flock`, { skip }, async t => {
        const path = join(temporaryDirectory(t), 'lock')
        writeFileSync(path, JSON.stringify(written))
        if (tool === 'without') hidePrograms(t)
        await (isTaken ? assertTaken : assertHeld)(path)
      })
    }
  }
})

describe('the lock of a process in another namespace', { skip: noFlock || whyNoNamespaces() }, () => {
  const namespaces: Record<string, readonly string[]> = {
    'of processes': ['unshare', '--pid', '--mount-proc', '--kill-child'],
    'of host names': ['unshare', '--uts', 'sh', '-c', 'hostname f00d && exec "$@"', 'sh'],
    'of both, as a container': [
      ...['unshare', '--uts', '--pid', '--mount-proc', '--kill-child'],
      ...['sh', '-c', 'hostname f00d && exec "$@"', 'sh'],
    ],
  }
  for (const [which, through] of Object.entries(namespaces)) {
    it(`${which} is left alone while the process lives, and taken over once the process is killed`, async t => {
      const path = join(temporaryDirectory(t), 'lock')
      const holder = await holdElsewhere(t, path, through)
      await assertHeld(path)
      await holder.kill()
      await assertTaken(path, LONG_MS)
    })
  }

  it('that was killed is taken over by a process in a new container under another name', async t => {
    const path = join(temporaryDirectory(t), 'lock')
    const container = (name: string): string[] => [
      ...['unshare', '--uts', '--pid', '--mount-proc', '--kill-child'],
      ...['sh', '-c', `hostname ${name} && exec "$@"`, 'sh'],
    ]
    const first = await holdElsewhere(t, path, container('one'))
    await first.kill()
    const second = await holdElsewhere(t, path, container('two'))
    await second.kill()
  })
})

describe('the lock of a live process on another machine with the same name and the same disk', {
  skip: whyNoNamespaces(),
}, () => {
  for (const tool of ['with', 'without']) {
    it(`is left alone ${tool} flock`, async t => {
      const folder = temporaryDirectory(t)
      const path = join(folder, 'lock')
      await holdElsewhere(t, path, otherMachine(folder, tool === 'with'))
      const holder = JSON.parse(readFileSync(path, 'utf8'))
      assert.deepEqual([holder.hostname, holder.machine_id], [hostname(), OTHER_MACHINE])
      assert.notEqual(holder.boot_id, own.boot_id)
      if (tool === 'without') hidePrograms(t)
      await assertHeld(path)
    })
  }
})

describe('the lock of a killed process on a file system that several machines may use', {
  skip: noFlock || whyNoMounting(),
}, () => {
  const holders: Record<string, { changes: Record<string, unknown>; isTaken: boolean; skip?: string | false }> = {
    'of this boot, in another container': { changes: { hostname: 'f00d', machine_id: null }, isTaken: true },
    'of an earlier boot of this machine, under another name': {
      changes: { hostname: 'formerly', boot_id: 'former' },
      isTaken: true,
      skip: own.machine_id === null && 'this machine has no machine id',
    },
    'of a machine that may still be running': {
      changes: { hostname: 'other', boot_id: 'other', machine_id: OTHER_MACHINE },
      isTaken: false,
    },
    'of a machine that may still be running, with the same name and no id': {
      changes: { boot_id: 'other', machine_id: null },
      isTaken: false,
    },
  }
  for (const [whose, { changes, isTaken, skip = false }] of Object.entries(holders)) {
    it(`${whose} is ${isTaken ? 'taken over' : 'left alone'}`, { skip }, async t => {
      // ramfs stands in for a network file system: neither is known to belong to one machine.
      const path = join(mountMemory(t, 'mode=700', 'ramfs'), 'lock')
      const holder = await holdElsewhere(t, path)
      await holder.kill()
      rewriteHolder(path, changes)
      await (isTaken ? assertTaken : assertHeld)(path)
    })
  }
})

/** Returns a command that runs the command in its arguments with another boot id and another machine id. */
function otherMachine(folder: string, hasFlock: boolean): string[] {
  const facts = join(folder, 'facts')
  mkdirSync(facts)
  writeFileSync(join(facts, 'boot'), '00000000-0000-4000-8000-000000000000\n')
  writeFileSync(join(facts, 'machine'), `${OTHER_MACHINE}\n`)
  const script = [
    `mount --bind ${facts}/boot /proc/sys/kernel/random/boot_id`,
    `mount --bind ${facts}/machine /etc/machine-id`,
    ...(hasFlock ? [] : ['export PATH=/nonexistent']),
    'exec "$@"',
  ]
  return ['unshare', '--mount', 'sh', '-c', script.join(' && '), 'sh']
}

function whyNoNamespaces(): string | false {
  const left = whyRightsAreLeftToCi()
  if (left !== false) return left
  const { status } = spawnSync('unshare', ['--uts', '--pid', '--mount-proc', '--fork', 'hostname', 'f00d'])
  return status === 0 ? false : 'needs root and the permission to create namespaces'
}
