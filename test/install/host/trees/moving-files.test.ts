import assert from 'node:assert/strict'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { describeItemSync } from '../../../../src/install/files/trees/tree-item.ts'
import { findRecordedIn } from '../../../../src/install/host/trees/drift.ts'
import { noteDrift, readDriftNote, type TreeBefore } from '../../../../src/install/host/trees/drift-note.ts'
import { findMoving } from '../../../../src/install/host/trees/moving-files.ts'
import { prepareTemporaryHost } from '../../prepared-host.ts'
import { installRecorded, GREETER as PLACE } from './recorded-tree.ts'

const FILES = { 'main.py': 'old', 'lib/a.py': 'a', 'lib/b.py': 'b' }
const LIB = ['lib/a.py', 'lib/b.py']
const NEVER = new AbortController().signal

/** An installed tree with its record, and with a note that there was no drift before a deployment. */
async function openTree(t: TestContext, isAfterCrash = false): Promise<TreeBefore> {
  const layout = await prepareTemporaryHost(t)
  const { root } = await installRecorded(layout, FILES)
  await noteDrift(layout.staging, { ...PLACE, root }, { added: [], removed: [], changed: [] })
  const note = readDriftNote(layout.staging, PLACE)
  assert.ok(note)
  return { root, note, recorded: findRecordedIn(layout, PLACE), isAfterCrash }
}

/** Renames `lib`, and renames it back while `act` searches. Resolves to the paths that `act` found. */
async function whileAway(root: string, act: () => Promise<ReadonlySet<string>>): Promise<string[]> {
  renameSync(join(root, 'lib'), join(root, 'last'))
  const back = setTimeout(10).then(() => renameSync(join(root, 'last'), join(root, 'lib')))
  const found = await act()
  await back
  return [...found].toSorted()
}

describe('findMoving', () => {
  for (const isAfterCrash of [false, true]) {
    it(`finds the files of a directory that is renamed away and back${isAfterCrash ? ', by content' : ''}`, async t => {
      const before = await openTree(t, isAfterCrash)
      assert.deepEqual(await whileAway(before.root, () => findMoving(before, LIB, NEVER)), LIB)
    })
  }

  it('does not find a file that is gone, or that was replaced', async t => {
    const before = await openTree(t)
    rmSync(join(before.root, 'lib/a.py'))
    writeFileSync(join(before.root, 'lib/b.py'), 'B')
    assert.deepEqual([...(await findMoving(before, LIB, NEVER))], [])
  })

  it('reads a file after a crash, when its times prove nothing', async t => {
    const before = await openTree(t, true)
    writeFileSync(join(before.root, 'main.py'), 'new')
    const stamp = describeItemSync(before.root, 'main.py')?.stamp
    const stamped: TreeBefore = {
      ...before,
      recorded: path => {
        const item = before.recorded(path)
        return item && { ...item, stamp }
      },
    }
    const [trusted, read] = [{ ...stamped, isAfterCrash: false }, stamped]
    assert.deepEqual([...(await findMoving(trusted, ['main.py'], NEVER))], ['main.py'])
    assert.deepEqual([...(await findMoving(read, ['main.py'], NEVER))], [])
  })

  it('stops looking once its time is up', async t => {
    const before = await openTree(t)
    assert.deepEqual([...(await findMoving(before, LIB, AbortSignal.abort()))], [])
  })
})
