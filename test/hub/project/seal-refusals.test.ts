import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cpSync, mkdirSync, renameSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { describe, it } from 'node:test'
import { packMembers } from '../../../hub/project/seal.ts'
import { ACTIONS } from '../../../src/core/plan/step.ts'
import { newFolder } from '../running-hub.ts'
import { newShop, PLAN_HEAD, SHOP, sealShop } from './project-source.ts'

const BUILT_AT = new Date('2026-01-02T03:04:05Z')

describe('sealing', () => {
  for (const [name, options, files] of [
    ['a source that is not a folder', { source: '/missing' }, {}],
    ['a version that is not semantic', { version: '1.0' }, {}],
    ['a version with a v', { version: 'v1.0.0' }, {}],
    ['a project id that is a path', { projectId: '../x' }, {}],
    ['a project id of dots', { projectId: '..' }, {}],
    ['a plugins folder that is a path', { pluginsDirname: '../x' }, {}],
    ['a plugins folder with a dot', { pluginsDirname: 'add.ons' }, {}],
    ['a plugins folder inside the extensions folder', { pluginsDirname: 'extensions/x' }, {}],
    ['the extensions folder as the plugins folder', { pluginsDirname: 'extensions' }, {}],
    ['the plan of another project', { projectId: 'other' }, {}],
    [
      'a project without a plugin',
      {},
      {
        'plugins/cart/plugin.yaml': undefined,
        'plugins/cart/src/main.py': undefined,
        'plugins/cart/.env.template': undefined,
      },
    ],
    ['a plugin without plugin.yaml', {}, { 'plugins/cart/plugin.yaml': undefined }],
    ['a plugin without a version', {}, { 'plugins/cart/plugin.yaml': 'name: cart\n' }],
    ['a plugin.yaml that is not YAML', {}, { 'plugins/cart/plugin.yaml': 'a: [' }],
    ['a plugin whose folder has an invalid name', {}, { 'plugins/My Cart/plugin.yaml': 'version: 1\n' }],
    ['a name with a backslash', {}, { 'plugins/cart/a\\b': '' }],
    ['a name with a line end', {}, { 'plugins/cart/a\nb': '' }],
    ['a project without a plan', {}, { 'deployment/install.yaml': undefined }],
    [
      'a plan of more than 64 KiB',
      {},
      { 'deployment/install.yaml': `${SHOP['deployment/install.yaml']}#${'x'.repeat(65_536)}` },
    ],
    ['a plugin.yaml of more than 32 KiB', {}, { 'plugins/cart/plugin.yaml': `version: 1\n#${'x'.repeat(32_768)}` }],
    ['a plan that is not YAML', {}, { 'deployment/install.yaml': 'a: [' }],
    [
      'a plan that installs a missing part',
      {},
      {
        'plugins/cart/.env.template': SHOP['plugins/cart/.env.template'],
        'deployment/install.yaml': `${PLAN_HEAD}steps: [{id: a, action: install_plugin, plugin: till}]\n`,
      },
    ],
    ['a plan that needs a missing template', {}, { 'plugins/cart/.env.template': undefined }],
    [
      'a plan that needs a file that is left out',
      {},
      {
        'plugins/cart/.env': 'S=1',
        'deployment/install.yaml': `${PLAN_HEAD}steps: [{id: i, action: install_plugin, plugin: cart}, {id: a, action: write_env, plugin: cart, from: plugins/cart/.env, depends_on: [i]}]\n`,
      },
    ],
  ] as const) {
    it(`refuses ${name}`, async t => {
      await assert.rejects(sealShop(t, options, files), { name: 'HubError', status: 400 })
    })
  }

  it('refuses an action that no deployment knows, and names the known actions', async t => {
    const plan = `${PLAN_HEAD}steps: [{id: a, action: run}]\n`
    await assert.rejects(sealShop(t, {}, { 'deployment/install.yaml': plan }), {
      status: 400,
      message: new RegExp(`must be one of ${ACTIONS.join(', ')}, not "run"`),
    })
  })

  for (const [name, target] of [
    ['that is absolute', '/etc/passwd'],
    ['that is absolute, to the name of a file of its plugin', '/plugin.yaml'],
    ['that dangles', 'missing'],
    ['out of the project', '../../../../etc/passwd'],
    ['out of its plugin', '../../extensions/mailer/run.sh'],
    ['out of its plugin and back', '../cart/plugin.yaml'],
    ['to a path that is left out', '.env'],
    ['through another symlink out of its plugin', 'up/../../extensions/mailer/run.sh'],
    ['out of its plugin only behind another symlink', 'src/here/../../cart/plugin.yaml'],
    ['to itself', 'link'],
    ['through a missing path', 'missing/../plugin.yaml'],
    ['through a file', 'plugin.yaml/x'],
  ] as const) {
    it(`refuses a symlink ${name}`, async t => {
      const source = newShop(t, { 'plugins/cart/.env': 'S=1' })
      symlinkSync('.', join(source, 'plugins/cart/up'))
      symlinkSync('..', join(source, 'plugins/cart/src/here'))
      symlinkSync(target, join(source, 'plugins/cart/link'))
      await assert.rejects(sealShop(t, { source }), { name: 'HubError', status: 400, message: /plugins\/cart\/link/ })
    })
  }

  it('refuses a symlink that leaves its plugin behind another one, however deep the plugins are', async t => {
    const source = newShop(t)
    mkdirSync(join(source, 'add'))
    renameSync(join(source, 'plugins'), join(source, 'add/ons'))
    cpSync(join(source, 'add/ons/cart'), join(source, 'add/ons/till'), { recursive: true })
    symlinkSync('..', join(source, 'add/ons/cart/src/up'))
    symlinkSync('src/main.py', join(source, 'add/ons/cart/start'))
    await sealShop(t, { source, pluginsDirname: 'add/ons' })
    symlinkSync('up/../till/plugin.yaml', join(source, 'add/ons/cart/src/link'))
    await assert.rejects(sealShop(t, { source, pluginsDirname: 'add/ons' }), {
      status: 400,
      message: /The symlink add\/ons\/cart\/src\/link leads to .* inside add\/ons\/cart\.$/,
    })
  })

  it('seals symlinks through others, inside their plugin', async t => {
    const source = newShop(t)
    const part = join(source, 'plugins/cart')
    symlinkSync('src', join(part, 'lib'))
    symlinkSync('lib/main.py', join(part, 'main'))
    symlinkSync('main', join(part, 'start'))
    await sealShop(t, { source })
  })

  it('says whether the plan is missing or not a file', async t => {
    const missing = { 'deployment/install.yaml': undefined }
    for (const [files, problem] of [
      [missing, 'does not exist'],
      [{ ...missing, 'deployment/install.yaml/x': '' }, 'is not a regular file'],
    ] as const)
      await assert.rejects(sealShop(t, {}, files), {
        message: new RegExp(`^The plan .*/deployment/install\\.yaml ${problem}: a project needs this file\\.$`),
      })
  })

  it('says whether a plugin.yaml is missing or not a file', async t => {
    const missing = { 'plugins/cart/plugin.yaml': undefined }
    for (const [files, message] of [
      [missing, 'The plugin plugins/cart has no plugin.yaml: add one.'],
      [
        { ...missing, 'plugins/cart/plugin.yaml/x': '' },
        'plugins/cart/plugin.yaml is a directory: replace it with a file.',
      ],
    ] as const)
      await assert.rejects(sealShop(t, {}, files), { message })
  })

  it('says whether a step with a source names no part or installs none', async t => {
    const source = '{marketplace_slug: till}'
    for (const [step, problem] of [
      ['action: install_plugin', 'plugin is missing'],
      ['action: install_extension', 'extension is missing'],
      ['action: prepare', '"source" is not a field of prepare'],
    ] as const) {
      const plan = `${PLAN_HEAD}steps: [{id: a, ${step}, source: ${source}}]\n`
      await assert.rejects(sealShop(t, {}, { 'deployment/install.yaml': plan }), {
        message: `deployment/install.yaml: step a: ${problem}.`,
      })
    }
  })

  it('refuses anything but files, folders and symlinks', async t => {
    const source = newShop(t)
    execFileSync('mkfifo', [join(source, 'plugins/cart/fifo')])
    await assert.rejects(sealShop(t, { source }), { name: 'HubError', status: 400 })
  })

  for (const [name, content] of [
    ['changed', 'other'],
    ['grew', 'longer than it was'],
    ['shrank', 'x'],
  ] as const) {
    it(`refuses a file that ${name} after it was hashed`, async t => {
      const source = join(newFolder(t, { file: content }), 'file')
      const sha256 = createHash('sha256').update('bytes').digest('hex')
      const member = { type: 'file', path: 'file', source, size: 5, isExecutable: false, sha256 } as const
      const packed = packMembers({ manifestJson: '{}', members: [member], time: BUILT_AT })
      await assert.rejects(buffer(packed), { name: 'HubError', status: 400 })
    })
  }
})
