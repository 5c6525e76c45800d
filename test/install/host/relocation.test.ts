import assert from 'node:assert/strict'
import { mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type InstalledRow, recordInstalled } from '../../../src/install/host/installed.ts'
import type { Layout, Place } from '../../../src/install/host/layout.ts'
import { readPreviousInstall } from '../../../src/install/host/previous-install.ts'
import { type Chooser, verifyDestination } from '../../../src/install/host/relocation.ts'
import { prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

const CHOOSERS: readonly Chooser[] = ['operator', 'host', 'publisher']
const PLACE_TAKEN = { code: 'place_taken' }

/** A host on which these rows are recorded, and these files are. */
async function hostWith(t: TestContext, files: Record<string, string>, rows: InstalledRow[] = []): Promise<Layout> {
  const layout = await prepareTemporaryHost(t)
  writeTree(layout.root, files)
  await recordInstalled(layout, { rows, removed: [] })
  return layout
}

function verify(layout: Layout, directory: string, chosenBy: Chooser): void {
  const target: Place = { shelf: 'plugins', id: 'cart', directory }
  const previous = readPreviousInstall(layout, target)
  verifyDestination(layout, { target, previous, chosenBy, allowTakeover: true })
}

describe('verifyDestination', () => {
  const integration = { 'integration.yaml': 'plugins: {directory: app}\n' }

  for (const below of ['plugins/handmade/src', 'plugins/new', 'app/of', 'mods/other/src', 'extensions-too/mailer']) {
    it(`refuses ${below}, which is in the place of another part, whoever names it`, async t => {
      const files = { ...integration, 'plugins/handmade/src/main.py': '', 'app/greeter/main.py': '' }
      const layout = await hostWith(t, files, [rowOf({ id: 'other', directory: 'mods' })])
      mkdirSync(join(layout.root, 'extensions'))
      symlinkSync('extensions', join(layout.root, 'extensions-too'))
      for (const chosenBy of CHOOSERS)
        assert.throws(() => verify(layout, below, chosenBy), below.startsWith('ext') ? /extensions/ : PLACE_TAKEN)
    })
  }

  for (const foreign of ['src', 'src/more', 'conf.d', 'link']) {
    it(`lets no publisher add to what is there for another purpose: ${foreign}`, async t => {
      const layout = await hostWith(t, { 'src/main.py': '', 'conf.d/a.conf': '' })
      symlinkSync('src', join(layout.root, 'link'))
      assert.throws(() => verify(layout, foreign, 'publisher'), PLACE_TAKEN)
      verify(layout, foreign, 'operator')
      verify(layout, foreign, 'host')
    })
  }

  it('lets a publisher use what is not there yet, and what is said to be for plugins', async t => {
    const files = { ...integration, 'app/greeter/main.py': '', 'plugins/a/main.py': '', 'mods/other/main.py': '' }
    const layout = await hostWith(t, files, [rowOf({ id: 'other', directory: 'mods' })])
    for (const directory of ['plugins', 'app', 'mods', 'new', 'new/for/plugins']) verify(layout, directory, 'publisher')
  })
})
