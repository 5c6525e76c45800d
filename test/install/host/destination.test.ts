import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { requireInPlace, verifyDestination } from '../../../src/install/host/destination.ts'
import { type Layout, layoutOf, type Place } from '../../../src/install/host/layout.ts'
import { type Chooser, presentRow, readPreviousInstall } from '../../../src/install/host/previous-install.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'
import { prepareTemporaryHost, removedRowOf, rowOf, snapshotOf } from '../prepared-host.ts'

const CHOOSERS: readonly Chooser[] = ['operator', 'host', 'publisher', 'rollback']
const PLACE_TAKEN = { code: 'place_taken' }

/** A host with these recorded rows and these files. */
async function hostWith(t: TestContext, files: Record<string, string>, rows: InstalledRow[] = []): Promise<Layout> {
  const layout = await prepareTemporaryHost(t)
  writeTree(layout.root, files)
  await recordInstalled(layout, { rows, removed: [] })
  return layout
}

async function verify(layout: Layout, directory: string, chosenBy: Chooser, allowTakeover = true): Promise<void> {
  const target: Place = { shelf: 'plugins', id: 'cart', directory }
  const origin = { contract: 'project', slug: 'shop' } as const
  verifyDestination(layout, { target, chosenBy, allowTakeover, origin })
  requireInPlace(layout, [{ target, chosenBy, allowTakeover, origin }])
}

describe('verifyDestination', () => {
  const integration = { 'integration.yaml': 'plugins: {directory: app}\n' }

  for (const below of ['plugins/handmade/src', 'plugins/new', 'app/of', 'mods/other/src', 'extensions-too/mailer']) {
    it(`refuses ${below}, which is reserved for other parts, whoever chooses it`, async t => {
      const files = { ...integration, 'plugins/handmade/src/main.py': '', 'app/greeter/main.py': '' }
      const layout = await hostWith(t, files, [rowOf({ id: 'other', directory: 'mods' })])
      mkdirSync(join(layout.root, 'extensions'))
      symlinkSync('extensions', join(layout.root, 'extensions-too'))
      for (const chosenBy of CHOOSERS)
        await assert.rejects(verify(layout, below, chosenBy), below.startsWith('ext') ? /extensions/ : PLACE_TAKEN)
    })
  }

  for (const foreign of ['src', 'src/more', 'conf.d', 'link']) {
    it(`does not let a publisher add to a directory with another purpose: ${foreign}`, async t => {
      const layout = await hostWith(t, { 'src/main.py': '', 'conf.d/a.conf': '' })
      symlinkSync('src', join(layout.root, 'link'))
      await assert.rejects(verify(layout, foreign, 'publisher'), PLACE_TAKEN)
      await verify(layout, foreign, 'operator')
      await verify(layout, foreign, 'host')
    })
  }

  it('lets only the operator choose a directory that leads out of the project root', async t => {
    const layout = await hostWith(t, {})
    symlinkSync(temporaryDirectory(t), join(layout.root, 'away'))
    for (const chosenBy of CHOOSERS.filter(chooser => chooser !== 'operator'))
      await assert.rejects(verify(layout, 'away', chosenBy), { code: 'unsafe_host' })
    await verify(layout, 'away', 'operator')
  })

  it('lets a publisher use a new directory, and one that is known to be for plugins', async t => {
    const files = { ...integration, 'app/greeter/main.py': '', 'plugins/a/main.py': '', 'mods/other/main.py': '' }
    const layout = await hostWith(t, files, [rowOf({ id: 'other', directory: 'mods' })])
    for (const directory of ['plugins', 'app', 'mods', 'new', 'new/for/plugins'])
      await verify(layout, directory, 'publisher')
  })
})

describe('the advice of a refused destination', () => {
  const advice = {
    host: {
      nested: 'choose another',
      foreign: 'set plugins-directory or allow-takeover: true',
      move: 'keep the previous',
    },
    publisher: { nested: 'ask the publisher', foreign: 'set allow-takeover: true', move: 'ask the publisher' },
    rollback: { nested: 'roll back to another', foreign: 'roll back to another', move: 'roll back to another' },
  } as const

  for (const chosenBy of ['host', 'publisher', 'rollback'] as const) {
    const { nested, foreign, move } = advice[chosenBy]

    it(`says what the operator can do if the directory was chosen by this: ${chosenBy}`, async t => {
      const files = { 'integration.yaml': 'plugins: {directory: mods}\n', 'mods/cart/main.py': '' }
      const layout = await hostWith(t, files)
      await assert.rejects(verify(layout, 'plugins/new', chosenBy), saying(nested))
      await assert.rejects(verify(layout, 'mods', chosenBy, false), saying(foreign))
      await recordInstalled(layout, { rows: [rowOf({ id: 'cart' })], removed: [] })
      writeTree(layout.root, { 'plugins/cart/main.py': '' })
      await assert.rejects(verify(layout, 'mods', chosenBy), saying(move))
    })
  }

  function saying(advice: string) {
    return { ...PLACE_TAKEN, message: new RegExp(`[:,;.] (or,? |or, to replace it, |Either )?${advice}`) }
  }
})

describe('requireInPlace', () => {
  const OURS = { contract: 'project', slug: 'shop', id: 'cart' } as const
  const target: Place = { shelf: 'plugins', id: 'cart', directory: 'app' }

  function check(layout: Layout, chosenBy: Chooser = 'host'): void {
    const origin = { contract: 'project', slug: 'shop' } as const
    requireInPlace(layout, [{ target, chosenBy, allowTakeover: false, origin }])
  }

  /** Returns the commands that the refusal lists. */
  function commandsOf(layout: Layout): string {
    try {
      check(layout)
    } catch (error) {
      assert.ok(error instanceof DeploymentError && error.code === 'place_taken')
      return /run this again: (.*)$/.exec(error.message)?.[1] ?? ''
    }
    return ''
  }

  it('lists commands that move a plugin and its settings, and is satisfied by them', async t => {
    const files = { 'plugins/cart/main.py': 'old', 'plugins/cart.env': 'A=1' }
    const layout = await hostWith(t, files, [rowOf(OURS)])
    const root = layout.root
    const [tree, settings] = ['cart', 'cart.env'].map(name => `mv -T ${root}/plugins/${name} ${root}/app/${name}`)
    assert.equal(commandsOf(layout), `mkdir -p ${root}/app && ${tree} && ${settings}`)
    execFileSync('sh', ['-c', commandsOf(layout)])
    check(layout)
    const { installed } = readPreviousInstall(layout, target)
    assert.deepEqual([installed?.directory, existsSync(join(root, 'app/cart.env'))], ['app', true])
  })

  it('lists what is left to move, and asks before a move that would replace settings', async t => {
    const files = { 'app/cart/main.py': '', 'plugins/cart.env': 'A=1', 'app/cart.env': 'A=2' }
    const layout = await hostWith(t, files, [rowOf(OURS)])
    const { root } = layout
    assert.equal(commandsOf(layout), `mv -iT ${root}/plugins/cart.env ${root}/app/cart.env`)
  })

  it('quotes paths for a shell', async t => {
    const layout = layoutOf(join(temporaryDirectory(t), "a b's"))
    mkdirSync(layout.own, { recursive: true })
    writeTree(layout.root, { 'plugins/cart/main.py': '' })
    await recordInstalled(layout, { rows: [rowOf(OURS)], removed: [] })
    execFileSync('sh', ['-c', commandsOf(layout)])
    check(layout)
    assert.ok(existsSync(join(layout.root, 'app/cart/main.py')))
  })

  it('lists only the settings of a removed part that returns, and those of no other origin', async t => {
    const layout = await hostWith(t, { 'plugins/cart.env': 'A=1' })
    const removed = removedRowOf({ ...OURS, snapshots: [snapshotOf('1-2.0.0')] })
    await recordInstalled(layout, { rows: [], removed: [removed] })
    const { root } = layout
    assert.equal(commandsOf(layout), `mkdir -p ${root}/app && mv -T ${root}/plugins/cart.env ${root}/app/cart.env`)
    await recordInstalled(layout, { rows: [], removed: [{ ...removed, slug: 'other' }] })
    check(layout)
  })

  it('accepts a plugin of which nothing is left anywhere, and another name of its directory', async t => {
    const layout = await hostWith(t, {}, [rowOf(OURS)])
    check(layout)
    writeTree(layout.root, { 'plugins/cart/main.py': '' })
    symlinkSync('plugins', join(layout.root, 'app'))
    check(layout)
  })
})

describe('presentRow', () => {
  const row = rowOf({ id: 'cart', directory: 'app' })

  it('follows a plugin to the directory to which the operator has moved it', async t => {
    const layout = await hostWith(t, { 'plugins/cart/main.py': '', 'mods/cart/main.py': '' })
    const { directory: _, ...usual } = row
    assert.deepEqual(presentRow(layout, row, 'plugins'), usual)
    assert.deepEqual(presentRow(layout, row, 'mods'), { ...row, directory: 'mods' })
  })

  it('leaves a plugin where it is, or where it was if it is nowhere', async t => {
    const layout = await hostWith(t, { 'app/cart/main.py': '', 'mods/cart/main.py': '' })
    for (const directory of ['mods', 'app', undefined]) assert.equal(presentRow(layout, row, directory), row)
    rmSync(join(layout.root, 'app'), { recursive: true })
    assert.equal(presentRow(layout, row, 'elsewhere'), row)
  })
})
