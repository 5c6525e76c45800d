import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { adviceAfter, nextCommand } from '../../../scripts/try/show.ts'
import { type Part, readSources } from '../../../scripts/try/sources.ts'

const PROJECT = join(import.meta.dirname, '../../../examples/project')

describe('adviceAfter', () => {
  const adviceFor = (failedStep: string, outcome = 'rolled_back'): string => {
    const outputs = { outcome, 'failed-step': failedStep }
    const result = { exitCode: 1, signal: null, outputs, summary: '', log: '', state: {} }
    return adviceAfter(result as never, readSources(PROJECT, {}), { break: true, root: '/tmp/try' })
  }

  it('distinguishes the step that --break adds from a step of the project', () => {
    assert.match(adviceFor('broken'), /^The broken step is sealed into 1\.0\.0\./)
    assert.match(adviceFor('migrate'), /^Correct what the error names/)
  })

  it('does not call it the end of a trial if the rollback failed', () => {
    assert.match(adviceFor('broken', 'inconsistent'), /^Correct what the error names/)
  })
})

const CLOCK = { kind: 'service', slug: 'clock', version: '1.0.9', folder: '/srv/clock' } as const
const PART: Part = { ...CLOCK, versionFile: undefined, isSigned: false }
const PLUGIN: Part = { ...PART, kind: 'plugin', versionFile: 'plugin.yaml' }
const KEPT = { setting: [], root: 'it' }

describe('the next command', () => {
  it('names the next version of a service, which has no file with a version', () => {
    const given = { setting: [], kind: 'service', root: '/tmp/it' }
    assert.equal(
      nextCommand(PART, given),
      'npm run try -- --from /srv/clock --kind service --root /tmp/it --version 1.0.10',
    )
  })

  it('leaves the version of a plugin to its plugin.yaml', () => {
    assert.equal(nextCommand(PLUGIN, KEPT), 'npm run try -- --from /srv/clock --root it')
  })

  it('names the version of a plugin whose plugin.yaml does not name one', () => {
    const plugin = { ...PLUGIN, version: '1.0.0', versionFile: undefined }
    assert.match(nextCommand(plugin, KEPT), / --root it --version 1\.0\.1$/)
    assert.match(nextCommand(plugin, { setting: [] }), / --root DIR --version 1\.0\.0$/)
  })

  it('names the next version of a project, whose plan does not name it', () => {
    const project = { ...PART, kind: 'project', pluginsDirname: 'plugins', versionFile: undefined } as const
    assert.match(nextCommand(project, KEPT), / --version 1\.0\.10$/)
    const other = { ...KEPT, 'plugins-dirname': 'src/modules' }
    assert.match(nextCommand(project, other), / --plugins-dirname src\/modules --root it --version 1\.0\.10$/)
  })

  it('is for the same version, and asks for a folder, if nothing was kept', () => {
    const command = 'npm run try -- --from /srv/clock --root DIR'
    assert.equal(nextCommand(PART, { setting: [] }), `${command} --version 1.0.9`)
    assert.equal(nextCommand({ ...PART, version: '1.0.0' }, { setting: [] }), command)
    assert.equal(nextCommand(PLUGIN, { setting: [] }), command)
  })

  it('names no next version if the current one cannot be incremented', () => {
    assert.match(nextCommand({ ...PART, version: '1.0.0-beta' }, KEPT), /--version NEXT$/)
  })

  it('quotes arguments for the shell, and shows no value of a setting', () => {
    const given = { from: "it's mine", setting: ['TOKEN=hunter22'], plan: 'a b.yaml' }
    assert.equal(
      nextCommand(PLUGIN, given),
      "npm run try -- --from 'it'\\''s mine' --plan 'a b.yaml' --root DIR --setting TOKEN=…",
    )
  })
})
