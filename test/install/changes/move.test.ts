import assert from 'node:assert/strict'
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import {
  announceable,
  applyChanges,
  type Change,
  isBack,
  type PlannedChange,
  undoChange,
} from '../../../src/install/changes/change.ts'
import { findRenamed, type PlannedMove } from '../../../src/install/changes/move.ts'
import { isAnyMade, undoChanges } from '../../../src/install/transaction/undo.ts'
import { byExtent } from '../../extent.ts'
import { listTree, temporaryDirectory, withoutRoot, writeTree } from '../../folders.ts'
import { makeSwappable, startSwapper, whyNoSwapper } from '../files/folder-swapper.ts'
import { collectLog } from '../prepared-host.ts'

const STAGING = '.hub-deploy/staging/7f6c7a52-7a0a-4d4b-9d53-6f6a3f6d1b11'
const SNAPSHOT = '.hub-deploy/snapshots/plugins/x/1-1.0.0'
const OUT = { type: 'move', from: 'plugins/x', to: SNAPSHOT } as const
const DATA = { type: 'move', from: `${SNAPSHOT}/data`, to: `${STAGING}/tree/data` } as const
const IN = { type: 'move', from: `${STAGING}/tree`, to: 'plugins/x' } as const
const NO_JOURNAL = { append: async () => undefined, close: () => {} }

const MOVES_PER_ROUND = 100
const ROUNDS = byExtent({ sample: 1, ci: 10 })

type Move = Change & { type: 'move' }

/** A host with a plugin that has data, and a staged new version. */
function makeRoot(t: TestContext): string {
  const root = temporaryDirectory(t)
  writeTree(root, { 'plugins/x/main': 'old', 'plugins/x/data/db': 'rows', [`${STAGING}/tree/main`]: 'new' })
  mkdirSync(join(root, '.hub-deploy/snapshots/plugins/x'), { recursive: true })
  return root
}

async function apply(root: string, ...changes: PlannedChange[]): Promise<Change[]> {
  const announced: Change[] = []
  for (const change of changes) {
    const made = await announceable(root, change)
    announced.push(made)
    await applyChanges(root, [made])
  }
  return announced
}

/**
 * Returns the move as if the moved file or directory had been created earlier: the clock of a file system may be too
 * coarse to distinguish two creations in a test.
 */
function madeEarlier(move: Move): Move {
  const [modified, made] = move.times?.split(' ') ?? []
  return { ...move, times: `${modified} ${BigInt(made ?? 0) - 1n}` }
}

function textOf(root: string, path: string): string {
  return readFileSync(join(root, path), 'utf8')
}

/** The content of the only directory that was set aside. */
function asideIn(root: string): Record<string, string> {
  const folder = join(root, '.hub-deploy/snapshots/set-aside')
  const names = readdirSync(folder)
  assert.equal(names.length, 1)
  return listTree(join(folder, names[0] ?? ''))
}

describe('the undo of a move, while a process works in the same directory,', () => {
  it('sets aside files that appear in the place of the new version', async t => {
    const root = makeRoot(t)
    await apply(root, OUT, DATA)
    const announced = await announceable(root, IN)
    writeTree(root, { 'plugins/x/data/log': 'theirs' })
    const [aside = ''] = await applyChanges(root, [announced])
    assert.equal(textOf(root, 'plugins/x/data/db'), 'rows')
    assert.equal(textOf(root, `${aside}/data/log`), 'theirs')
  })

  it('moves back the data that was moved instead of the announced data, even if the source exists again', async t => {
    const root = makeRoot(t)
    await apply(root, OUT)
    const announced = await announceable(root, DATA)
    renameSync(join(root, SNAPSHOT, 'data'), join(root, SNAPSHOT, 'last'))
    writeTree(root, { [`${SNAPSHOT}/data/db`]: 'newer rows' })
    await applyChanges(root, [announced])
    writeTree(root, { [`${SNAPSHOT}/data/log`]: 'made anew' })
    assert.equal(isBack(root, announced), false)
    assert.equal((await undoChange(root, announced)).wasMade, true)
    assert.equal(textOf(root, `${SNAPSHOT}/data/db`), 'newer rows')
    assert.deepEqual(Object.keys(asideIn(root)), ['log'])
  })

  it('loses neither of two directories if one has the announced inode', async t => {
    const root = makeRoot(t)
    await apply(root, OUT)
    const announced = await announceable(root, DATA)
    writeTree(root, { [`${STAGING}/tree/data/db`]: 'newer rows' })
    assert.equal((await undoChange(root, announced)).wasMade, false)
    assert.equal(textOf(root, `${SNAPSHOT}/data/db`), 'rows')
    assert.deepEqual(Object.keys(asideIn(root)), ['db'])
  })

  const renamings: Record<string, { kept: string; rename: [from: string, to: string]; again?: string }> = {
    'that path': { kept: 'data', rename: ['data', 'data.v2'] },
    'it into another directory': { kept: 'data', rename: ['data', 'var/data'] },
    'a directory that contains it': { kept: 'var/data', rename: ['var', 'var.v2'] },
    'that path, and the old version has created a new one': {
      kept: 'data',
      rename: ['data', 'data.v2'],
      again: `${SNAPSHOT}/data/log`,
    },
    'that path, and has created a new one': { kept: 'data', rename: ['data', 'data.old'], again: 'plugins/x/data/log' },
    'a directory that contains it, and has created a new one': {
      kept: 'var/data',
      rename: ['var', 'var.old'],
      again: 'plugins/x/var/data/log',
    },
  }
  for (const [what, { kept, rename, again }] of Object.entries(renamings)) {
    it(`moves a kept path back if the new version has renamed ${what}`, async t => {
      const root = makeRoot(t)
      writeTree(root, { 'plugins/x/var/data/db': 'rows', [`${STAGING}/tree/var/main`]: 'new' })
      const move: PlannedChange = { type: 'move', from: `${SNAPSHOT}/${kept}`, to: `${STAGING}/tree/${kept}` }
      const [out, moved, into] = (await apply(root, OUT, move, IN)) as [Change, Change, Change]
      const [from, to] = rename.map(path => join(root, 'plugins/x', path)) as [string, string]
      renameSync(from, to)
      if (again !== undefined) writeTree(root, { [again]: 'made anew' })
      for (const change of [into, moved, out]) assert.equal((await undoChange(root, change)).wasMade, true)
      assert.equal(textOf(root, `plugins/x/${kept}/db`), 'rows')
      if (again !== undefined) assert.deepEqual(Object.keys(asideIn(root)), ['log'])
    })
  }

  it('does not delete data that the new version has renamed into a directory that cannot be searched', async t => {
    const root = makeRoot(t)
    const [, data] = (await apply(root, OUT, DATA)) as [Change, Change]
    const hidden = join(root, STAGING, 'tree/hidden')
    mkdirSync(hidden)
    renameSync(join(root, STAGING, 'tree/data'), join(hidden, 'data'))
    chmodSync(root, 0o755)
    chmodSync(hidden, 0)
    const undone = withoutRoot(async () => void (await undoChange(root, data)))
    await assert.rejects(undone, {
      code: 'host_not_writable',
      message: /searching \S+\/hidden for a path that the new version/,
    })
    chmodSync(hidden, 0o700)
    assert.equal((await undoChange(root, data)).wasMade, true)
    assert.equal(textOf(root, `${SNAPSHOT}/data/db`), 'rows')
  })

  it('does not delete data in a tree with too many files to search', async t => {
    const root = makeRoot(t)
    const [, data] = (await apply(root, OUT, DATA)) as [Change, Move]
    renameSync(join(root, STAGING, 'tree/data'), join(root, STAGING, 'tree/renamed'))
    const tree = `${STAGING}/tree`
    assert.equal(await findRenamed(root, data, 3), `${tree}/renamed`)
    rmSync(join(root, tree, 'renamed'), { recursive: true })
    assert.equal(await findRenamed(root, data, 1), undefined)
    writeTree(root, { [`${tree}/log`]: '' })
    await assert.rejects(findRenamed(root, data, 1), {
      message: `${SNAPSHOT}/data is missing. The new version may have renamed it, but ${tree} has more than 1 files and directories, too many to search. Stop the process that creates them, and run again.`,
    })
  })

  it('waits for data that a process renames away for a moment', async t => {
    const root = makeRoot(t)
    const [, data] = await apply(root, OUT, DATA)
    assert.ok(data)
    const [moved, away] = [join(root, STAGING, 'tree/data'), join(root, 'plugins/away')]
    renameSync(moved, away)
    const back = setTimeout(10).then(() => renameSync(away, moved))
    await undoChange(root, data)
    await back
    assert.equal(textOf(root, `${SNAPSHOT}/data/db`), 'rows')
  })

  it('does not move back other data that has the announced inode', async t => {
    const root = makeRoot(t)
    const [, data] = (await apply(root, OUT, DATA)) as [Change, Move]
    rmSync(join(root, STAGING, 'tree/data'), { recursive: true })
    writeTree(root, { [`${STAGING}/tree/other/log`]: 'theirs' })
    const reused = { ...madeEarlier(data), ino: String(lstatSync(join(root, STAGING, 'tree/other')).ino) }
    assert.equal((await undoChange(root, reused)).lost, `${SNAPSHOT}/data`)
    assert.equal(textOf(root, `${STAGING}/tree/other/log`), 'theirs')
  })

  it('calls a kept path replaced only if it is nowhere else', async t => {
    const root = makeRoot(t)
    const [out, data] = (await apply(root, OUT, DATA)) as [Change, Move]
    renameSync(join(root, STAGING, 'tree/data'), join(root, 'elsewhere'))
    writeTree(root, { [`${SNAPSHOT}/data/log`]: 'made anew' })
    const alone = { wasMade: false, setAside: [] }
    const replaced = { ...alone, replaced: `${SNAPSHOT}/data` }
    assert.deepEqual(await undoChange(root, data), replaced)
    const { ino, mtimeNs, birthtimeNs } = lstatSync(join(root, SNAPSHOT, 'data'), { bigint: true })
    const same = { ...data, ino: String(ino), times: `${mtimeNs} ${birthtimeNs}` }
    assert.deepEqual(await undoChange(root, madeEarlier(same)), replaced)
    assert.equal(isBack(root, madeEarlier(same)), false)
    assert.deepEqual(await undoChange(root, same), alone)
    assert.ok(isBack(root, same))
    renameSync(join(root, SNAPSHOT), join(root, 'elsewhere/x'))
    writeTree(root, { 'plugins/x/main': 'of somebody else' })
    assert.deepEqual(await undoChange(root, out), alone)
  })

  for (const [kept, file, number, replaced] of [
    ['data', 'data/log', 'another', `${SNAPSHOT}/data`],
    ['data', 'data/log', 'the same', `${SNAPSHOT}/data`],
    ['.env', '.env', 'another', undefined],
  ] as const)
    it(`calls a kept ${kept} ${replaced ? 'replaced' : 'moved'} if the new version has recreated it with ${number} inode`, async t => {
      const root = makeRoot(t)
      writeTree(root, { 'plugins/x/.env': 'A=1' })
      const move: PlannedChange = { type: 'move', from: `${SNAPSHOT}/${kept}`, to: `${STAGING}/tree/${kept}` }
      const [, moved] = (await apply(root, OUT, move)) as [Change, Move]
      rmSync(join(root, move.to), { recursive: true })
      writeTree(root, { [`${STAGING}/tree/${file}`]: 'made again' })
      const ino = number === 'another' ? '1' : String(lstatSync(join(root, move.to)).ino)
      const undone = await undoChange(root, { ...madeEarlier(moved), ino })
      assert.deepEqual([undone.wasMade, undone.replaced], [true, replaced])
      assert.equal(textOf(root, `${SNAPSHOT}/${file}`), 'made again')
    })

  it('moves back a file that was rewritten in a tree that cannot be searched', async t => {
    const root = makeRoot(t)
    writeTree(root, { 'plugins/x/.env': 'A=1', [`${STAGING}/tree/.env.new`]: 'A=2' })
    const move: PlannedChange = { type: 'move', from: `${SNAPSHOT}/.env`, to: `${STAGING}/tree/.env` }
    const [, moved] = (await apply(root, OUT, move)) as [Change, Change]
    renameSync(join(root, `${move.to}.new`), join(root, move.to))
    const hidden = join(root, STAGING, 'tree/hidden')
    mkdirSync(hidden)
    chmodSync(root, 0o755)
    for (const folder of [SNAPSHOT, `${STAGING}/tree`]) chmodSync(join(root, folder), 0o777)
    chmodSync(hidden, 0)
    await withoutRoot(async () => assert.equal((await undoChange(root, moved)).wasMade, true))
    chmodSync(hidden, 0o700)
    assert.equal(textOf(root, move.from), 'A=2')
  })

  it('moves back data that now contains a new directory with the name of the data', async t => {
    const root = makeRoot(t)
    writeTree(root, { 'plugins/x/var/data/db': 'rows', [`${STAGING}/tree/var/main`]: 'new' })
    const move: PlannedChange = { type: 'move', from: `${SNAPSHOT}/var/data`, to: `${STAGING}/tree/var/data` }
    const [, moved] = (await apply(root, OUT, move)) as [Change, Change]
    const [at, aside] = ['tree/var', 'tree/moved'].map(path => join(root, STAGING, path)) as [string, string]
    renameSync(join(at, 'data'), aside)
    rmSync(at, { recursive: true })
    renameSync(aside, at)
    mkdirSync(join(at, 'data'))
    assert.deepEqual(await undoChange(root, moved), { wasMade: true, setAside: [] })
    assert.deepEqual(readdirSync(join(root, move.from)).toSorted(), ['data', 'db'])
  })

  it('calls a kept path replaced if both versions have recreated it, the old one with its inode', async t => {
    const root = makeRoot(t)
    const [, data] = (await apply(root, OUT, DATA)) as [Change, Move]
    rmSync(join(root, DATA.to), { recursive: true })
    writeTree(root, { [`${DATA.from}/log`]: 'of the old', [`${DATA.to}/log`]: 'of the new' })
    const reused = { ...madeEarlier(data), ino: String(lstatSync(join(root, DATA.from)).ino) }
    const { wasMade, replaced } = await undoChange(root, reused)
    assert.deepEqual([wasMade, replaced], [true, DATA.from])
    assert.equal(textOf(root, `${DATA.from}/log`), 'of the new')
    assert.deepEqual(Object.keys(asideIn(root)), ['log'])
  })

  it('names a lost path below the directory that its plugin returns to', async t => {
    const root = temporaryDirectory(t)
    writeTree(root, { 'lib/modules/x/data/db': 'rows', [`${STAGING}/tree/main`]: 'new' })
    mkdirSync(join(root, '.hub-deploy/snapshots/plugins/x'), { recursive: true })
    const changes = await apply(root, { ...OUT, from: 'lib/modules/x' }, DATA)
    rmSync(join(root, DATA.to), { recursive: true })
    const pending = changes.map((change, index) => ({ seq: index + 1, change }))
    const lost: string[] = []
    await undoChanges({ root, journal: NO_JOURNAL, log: collectLog(), onLost: problem => lost.push(problem) }, pending)
    assert.equal(lost[0]?.split(' ')[0], 'lib/modules/x/data')
  })

  it('does not mistake a new directory with an old inode for data that is already back', async t => {
    const root = makeRoot(t)
    const [, data] = await apply(root, OUT, DATA, IN)
    writeTree(root, { [`${SNAPSHOT}/data/log`]: 'made anew' })
    const reused = { ...(data as Move), ino: String(lstatSync(join(root, SNAPSHOT, 'data')).ino) }
    assert.equal(isBack(root, reused), false)
  })

  it('waits for the folder of a nested path, too, and sets nothing aside', async t => {
    const root = makeRoot(t)
    writeTree(root, { 'plugins/x/etc/app/local.conf': 'ours', [`${STAGING}/tree/etc/app/default.conf`]: '' })
    const path = 'etc/app/local.conf'
    const [, moved] = await apply(root, OUT, {
      type: 'move',
      from: `${SNAPSHOT}/${path}`,
      to: `${STAGING}/tree/${path}`,
    })
    const [folder, away] = [join(root, SNAPSHOT, 'etc'), join(root, 'plugins/away')]
    renameSync(folder, away)
    const back = setTimeout(10).then(() => renameSync(away, folder))
    await undoChange(root, moved as Change)
    await back
    assert.equal(textOf(root, `${SNAPSHOT}/${path}`), 'ours')
    assert.ok(!existsSync(join(root, '.hub-deploy/set-aside')))
  })

  for (const [how, replace] of Object.entries({
    removed: (folder: string) => rmSync(folder, { recursive: true }),
    'replaced by a symlink': (folder: string) => {
      renameSync(folder, `${folder}.away`)
      symlinkSync('/tmp', folder)
    },
  }))
    it(`moves a nested path back even if its folder was ${how}`, async t => {
      const root = makeRoot(t)
      writeTree(root, { 'plugins/x/etc/app/local.conf': 'ours', [`${STAGING}/tree/etc/app/default.conf`]: '' })
      const path = 'etc/app/local.conf'
      const nested: PlannedChange = { type: 'move', from: `${SNAPSHOT}/${path}`, to: `${STAGING}/tree/${path}` }
      const [, moved] = await apply(root, OUT, nested)
      replace(join(root, SNAPSHOT, 'etc'))
      assert.equal((await undoChange(root, moved as Change)).wasMade, true)
      assert.equal(textOf(root, `${SNAPSHOT}/${path}`), 'ours')
      assert.ok(!existsSync('/tmp/app/local.conf'))
    })
})

describe('a file that has both names after a power cut', () => {
  const MOVES: Record<string, PlannedMove> = {
    'in the new version': { type: 'move', from: `${SNAPSHOT}/.env`, to: `${STAGING}/tree/.env` },
    'in the snapshot': { type: 'move', from: `${STAGING}/replaced/plugins/x/.env`, to: `${SNAPSHOT}/.env` },
  }
  for (const [where, move] of Object.entries(MOVES))
    it(`loses only its name ${where}, and nothing is set aside`, async t => {
      const root = makeRoot(t)
      await apply(root, OUT)
      writeTree(root, { [move.from]: 'A=1' })
      const [moved] = await apply(root, move)
      linkSync(join(root, move.to), join(root, move.from))
      assert.equal(isAnyMade(root, [{ seq: 1, change: moved as Change }]), true)
      assert.deepEqual(await undoChange(root, moved as Change), { wasMade: false, setAside: [] })
      assert.deepEqual([textOf(root, move.from), existsSync(join(root, move.to))], ['A=1', false])
      assert.equal(existsSync(join(root, '.hub-deploy/snapshots/set-aside')), false)
    })
})

describe('a move on a file system that renumbers inodes', () => {
  const UPDATE = [OUT, DATA, IN]
  for (let made = 1; made <= UPDATE.length; made++)
    it(`is fully undone after ${made} of ${UPDATE.length} moves, and the undo can be repeated`, async t => {
      const root = makeRoot(t)
      const before = listTree(root)
      const changes = await apply(root, ...UPDATE.slice(0, made))
      const renumbered = changes.map((change, index) => ({ seq: index + 1, change: { ...change, ino: '1' } as Change }))
      for (let time = 1; time <= 2; time++) {
        await undoChanges({ root, journal: NO_JOURNAL, log: collectLog() }, [...renumbered])
        assert.deepEqual(listTree(root), before)
        assert.equal(isAnyMade(root, renumbered), false)
      }
    })

  it('leaves alone a directory that an operator has meanwhile put in its place', async t => {
    const root = makeRoot(t)
    const [, , moved] = await apply(root, OUT, DATA, IN)
    rmSync(join(root, 'plugins/x'), { recursive: true })
    writeTree(root, { 'plugins/x/main': 'of the operator' })
    await undoChange(root, { ...(moved as Move), ino: '1' })
    assert.equal(textOf(root, 'plugins/x/main'), 'of the operator')
  })
})

describe('a kept path in a folder of another user', { skip: whyNoSwapper() }, () => {
  it('moves only from and to that folder, while its user swaps it for symlinks', async t => {
    const root = makeRoot(t)
    // The other user must be able to enter the root.
    chmodSync(root, 0o755)
    const outside = join(root, 'outside')
    writeTree(outside, { kept: 'of somebody else' })
    makeSwappable(join(root, 'plugins/x/service'))
    await apply(root, OUT)
    mkdirSync(join(root, STAGING, 'tree/service/s0'), { recursive: true })
    const [source, target] = [`${SNAPSHOT}/service/s0/kept`, `${STAGING}/tree/service/s0/kept`]
    writeTree(root, { [source]: 'ours' })
    const swapper = startSwapper(t, outside)
    const hits: string[] = []
    let moves = 0
    for (let round = 0; round < ROUNDS; round++) {
      await swapper.enter(join(root, SNAPSHOT, 'service'))
      for (let n = 0; n < MOVES_PER_ROUND; n += 2) {
        const [change] = await apply(root, { type: 'move', from: source, to: target }).catch(() => [])
        if (change === undefined) continue
        if (textOf(root, target) !== 'ours') hits.push(`${round}: another file was moved`)
        await undoChange(root, change).catch(() => {})
        if (!existsSync(join(root, target))) moves += 2
        else renameSync(join(root, target), join(root, 'spare'))
        if (readdirSync(outside).join() !== 'kept' || textOf(outside, 'kept') !== 'of somebody else')
          hits.push(`${round}: ${readdirSync(outside)}`)
        writeTree(outside, { kept: 'of somebody else' })
      }
      await swapper.done()
      restore(root, source)
    }
    t.diagnostic(`${moves} moves`)
    assert.deepEqual(hits, [])
    assert.ok(moves > (ROUNDS * MOVES_PER_ROUND) / 2, `only ${moves} moves succeeded`)
  })
})

/** Restores the folder and the file, whatever the race with the swapper has left. */
function restore(root: string, source: string): void {
  const service = join(root, SNAPSHOT, 'service')
  rmSync(service, { recursive: true, force: true })
  rmSync(join(root, STAGING, 'tree/service/s0/kept'), { force: true })
  makeSwappable(service)
  writeTree(root, { [source]: 'ours' })
}
