import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { publishArchive } from '../../../hub/marketplace/publish.ts'
import { buildZip, file, type ZipItem } from '../../archives/zip-builder.ts'
import { whyLeftToCi } from '../../extent.ts'
import { openProjectStage, PROJECT_ID } from '../harness/project-stage.ts'
import { openStage, SIGNING_SECRET, type Stage } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const SCRIPT = '#!/bin/sh\necho 1\n'
const MANIFEST = file('plugin.yaml', 'name: greeter\nversion: "1.0.0"\n')
const FILES = [MANIFEST, file('top.sh', SCRIPT), file('bin/start', SCRIPT), file('large', `#!${'x'.repeat(2 ** 21)}`)]

const withoutModes: Readonly<Record<string, (item: ZipItem) => ZipItem>> = {
  'of DOS': item => ({ ...item, system: 0 }),
  'of Unix whose entries have no permissions': item => ({ ...item, mode: 0 }),
}
const noticesIn = (log: string): string[] => log.match(/::notice::\d+ files? with a first line such as .*/g) ?? []

describe('the scripts of a ZIP without Unix modes', () => {
  let stage: Stage
  beforeEach(async () => {
    stage = await openStage()
  })
  afterEach(() => stage.close())

  for (const [from, strip] of Object.entries(withoutModes))
    it(`are counted in one notice for a plugin, and in that of a check (${from})`, async () => {
      await stage.publishBytes('1.0.0', buildZip([...FILES, file('main.py', 'x')].map(strip)))
      const results = [await stage.verify(), await stage.deploy()]
      for (const { exitCode, log } of results) {
        assert.equal(exitCode, 0, log)
        const [notice = '', ...others] = noticesIn(log)
        assert.deepEqual(others, [])
        assert.match(notice, /3 files .* are not executable \(.*top\.sh/)
        assert.match(notice, /chmod \+x; .*git archive/)
      }
      assert.deepEqual(noticesIn((await stage.deploy()).log), [])
    })

  it('are counted in one notice for a service', async () => {
    const items = FILES.slice(1, 2).map(item => ({ ...item, system: 0 }))
    await stage.publishBytes('1.0.0', buildZip(items), { kind: 'service' })
    const { exitCode, log } = await stage.deploy({ kind: 'service', 'install-plan': '' })
    assert.equal(exitCode, 0, log)
    assert.match(noticesIn(log).join('\n'), /^::notice::1 file .* is not executable \(top\.sh\), [^\n]*$/)
  })

  it('or its only file, if not executable, are named once when a service does not start', {
    skip: ONLY_IN_CI,
  }, async () => {
    const check = { healthcheck: { command: ['/bin/false'] } }
    writeFileSync(join(stage.workspace.path, 'host.yaml'), JSON.stringify({ version: 1, plugins: { greeter: check } }))
    stage.writePlan(
      'format_version: "1"\nproject_id: greeter\nversion: "1"\nsteps:\n  - {id: files, action: install_extension, extension: greeter}\n  - {id: ok, action: healthcheck, plugin: greeter, timeout: 1, depends_on: [files]}\n',
    )
    const inputs = { kind: 'service', 'host-config': 'host.yaml' }
    const program = file('greeter', '\x7fELF')
    for (const [version, item, found] of [
      ['1.0.0', program, 1],
      ['2.0.0', { ...file('greeter', SCRIPT), system: 0 }, 0],
      ['3.0.0', { ...program, mode: 0o100755 }, 0],
    ] as const) {
      await stage.publishBytes(version, buildZip([item]), { kind: 'service' })
      const { exitCode, log } = await stage.deploy({ ...inputs, version })
      assert.equal(exitCode, 1, log)
      const notices =
        log.match(/::notice::No file of extensions\/greeter is executable\. .*chmod \+x.*git archive/g) ?? []
      assert.equal(notices.length, found, log)
    }
  })

  it('cause no notice if any file has a mode, or if there is no script', async () => {
    const program = { ...file('bin/start', SCRIPT), mode: 0o100755 }
    await stage.publishBytes('1.0.0', buildZip([MANIFEST, program, file('lib.sh', SCRIPT)]))
    const modes = await stage.deploy()
    await stage.publishBytes('2.0.0', buildZip([{ ...file('main.py', 'x'), system: 0 }]), { kind: 'service' })
    const none = await stage.deploy({ kind: 'service', 'install-plan': '', version: '2.0.0' })
    for (const { exitCode, log } of [modes, none]) assert.deepEqual([exitCode, noticesIn(log)], [0, []], log)
  })
})

describe('the scripts of several parts of a project from ZIPs without Unix modes', () => {
  it('are counted in one notice, each with the name of its part, but only those below the subdirectory', async t => {
    const stage = await openProjectStage()
    t.after(() => stage.close())
    const items = [file('app/run.sh', SCRIPT), file('other/run.sh', SCRIPT)].map(item => ({ ...item, system: 0 }))
    const publication = { kind: 'service', version: '1.0.0', signingSecret: SIGNING_SECRET } as const
    for (const slug of ['mail', 'queue']) await publishArchive(stage.store, buildZip(items), { ...publication, slug })
    const step = (id: string): string =>
      `  - {id: ${id}, action: install_extension, extension: ${id}, source: {marketplace_slug: ${id}, marketplace_kind: service, subdirectory: app}}\n`
    await stage.publish('1.0.0', {
      'plugins/cart/plugin.yaml': 'name: cart\nversion: "1.0.0"\n',
      'plugins/cart/run.sh': SCRIPT,
      'deployment/install.yaml': `format_version: "1"\nproject_id: ${PROJECT_ID}\nversion: "1"\nsteps:\n  - {id: cart, action: install_plugin, plugin: cart}\n${step('mail')}${step('queue')}`,
    })
    const keys = { 'sources-hub-url': stage.hub.url, 'sources-api-key': stage.apiKey }
    const { exitCode, log } = await stage.deploy({ ...keys, 'sources-signing-secret': SIGNING_SECRET })
    assert.equal(exitCode, 0, log)
    assert.equal(readFileSync(join(stage.root, 'extensions/mail/run.sh'), 'utf8'), SCRIPT)
    const [notice = '', ...others] = noticesIn(log)
    assert.deepEqual(others, [])
    assert.match(notice, /2 files .*\(extensions\/mail\/run\.sh, extensions\/queue\/run\.sh\)/)
  })
})
