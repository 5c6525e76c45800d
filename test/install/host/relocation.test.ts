import assert from 'node:assert/strict'
import { mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { Layout, Place } from '../../../src/install/host/layout.ts'
import { type Chooser, readPreviousInstall } from '../../../src/install/host/previous-install.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import { verifyDestination } from '../../../src/install/host/relocation.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import { writeTree } from '../../folders.ts'
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
  const previous = readPreviousInstall(layout, target)
  const origin = { contract: 'project', slug: 'shop' } as const
  const host = { layout, keepPaths: ['data', 'etc/tls'] }
  await verifyDestination(host, { target, previous, chosenBy, allowTakeover, origin })
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
      await assert.rejects(verify(layout, 'mods', chosenBy), saying(move))
    })
  }

  function saying(advice: string) {
    return { ...PLACE_TAKEN, message: new RegExp(`[:,;.] (or,? |or, to replace it, )?${advice}`) }
  }
})

describe('verifyDestination of a part that moves', () => {
  const OURS = { contract: 'project', slug: 'shop', id: 'cart' } as const
  const SNAPSHOT = '.hub-deploy/snapshots/plugins/cart/1-2.0.0'

  /** Installs a version in which `path` is a symlink with the target `link`. */
  async function installedWith(t: TestContext, path: string, link: string): Promise<Layout> {
    const layout = await hostWith(t, { 'plugins/cart/main.py': '' }, [rowOf(OURS)])
    mkdirSync(join(layout.root, 'plugins/cart', path, '..'), { recursive: true })
    symlinkSync(link, join(layout.root, 'plugins/cart', path))
    return layout
  }

  for (const [path, link] of [
    ['data', '../../shared'],
    ['data/db', '../../other/db'],
    ['etc/tls', '../../../tls'],
  ] as const) {
    it(`refuses a kept symlink that would lead elsewhere: ${path} to ${link}`, async t => {
      const layout = await installedWith(t, path, link)
      await assert.rejects(verify(layout, 'new/for/plugins', 'operator'), { code: 'unsafe_host', message: /absolute/ })
    })
  }

  it('refuses an absolute kept symlink that leads into the old directory', async t => {
    const layout = await installedWith(t, 'data/now', '/tmp')
    symlinkSync(join(layout.root, 'plugins/cart/data/db'), join(layout.root, 'plugins/cart/data/latest'))
    await assert.rejects(verify(layout, 'new', 'operator'), {
      code: 'unsafe_host',
      message: /Make the symlink relative/,
    })
  })

  for (const [path, link] of [
    ['data', '/srv/shared'],
    ['data/latest', 'db-1'],
    ['data', '../../shared'],
    ['cache', '../elsewhere'],
  ] as const) {
    it(`accepts a kept symlink whose target stays the same: ${path} to ${link}`, async t => {
      await verify(await installedWith(t, path, link), 'new', 'publisher')
    })
  }

  it('refuses foreign settings in the new directory, unless the operator names that directory', async t => {
    const layout = await hostWith(t, { 'plugins/cart.env': 'A=1', 'app/cart.env': 'A=2' }, [rowOf(OURS)])
    await assert.rejects(verify(layout, 'app', 'host'), {
      ...PLACE_TAKEN,
      message: /app\/cart\.env, .* or keep the previous plugins directory\.$/,
    })
    await verify(layout, 'app', 'operator')
  })

  it('has the same rules for a part that returns after its removal', async t => {
    const layout = await hostWith(t, { [`${SNAPSHOT}/main.py`]: '', 'plugins/cart.env': 'A=1' })
    const snapshots = [snapshotOf('1-2.0.0', { kept_paths: ['data'] })]
    await recordInstalled(layout, { rows: [], removed: [removedRowOf({ ...OURS, snapshots })] })
    await verify(layout, 'new', 'publisher')
    symlinkSync('../../shared', join(layout.root, SNAPSHOT, 'data'))
    await assert.rejects(verify(layout, 'new/for/plugins', 'publisher'), {
      code: 'unsafe_host',
      message: /or ask the publisher to keep the previous plugins_dirname\.$/,
    })
    writeTree(layout.root, { 'mods/cart.env': 'A=2' })
    await assert.rejects(
      verify(layout, 'mods', 'operator').then(() => verify(layout, 'mods', 'host')),
      PLACE_TAKEN,
    )
  })
})
