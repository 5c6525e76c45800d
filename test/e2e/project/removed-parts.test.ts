import assert from 'node:assert/strict'
import { existsSync, readFileSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { createProjectKey } from '../../../hub/project/keys.ts'
import type { RemovedRow } from '../../../src/install/host/rows.ts'
import { whyLeftToCi } from '../../extent.ts'
import { assertSettled, commandsIn, listHost, listOwn, readLocalReport } from '../harness/evidence.ts'
import { changesOf, deployed, installedRows, runningParts } from '../harness/project-evidence.ts'
import {
  filesWith,
  openProjectStage,
  openShop,
  type Parts,
  PROJECT_ID,
  type ProjectStage,
} from '../harness/project-stage.ts'
import { writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const WITHOUT_MAILER = ['cart', 'till']

let stage: ProjectStage
beforeEach(async () => {
  stage = await openProjectStage()
})
afterEach(() => stage.close())

/** Continues on a host where 1.0.0 is installed. */
async function beginWithFirst(): Promise<void> {
  await stage.close()
  stage = await openShop({ '1.0.0': filesWith('1.0.0') })
}

async function update(version: string, parts: Parts = {}) {
  await stage.publish(version, filesWith(version, parts))
  return deployed(stage)
}

/** A second project on the same hub. It is deployed to the same root. */
async function secondProject() {
  const newKey = (purpose: 'devkey' | 'credential') =>
    createProjectKey(stage.store, { project_id: 'other', purpose, name: 'test' }).value
  const keys = { devkey: newKey('devkey'), 'deployment-credential': newKey('credential') }
  const inputs = { 'project-id': 'other', 'allow-takeover': 'true', ...keys }
  return {
    async update(version: string, included: readonly string[]) {
      const files = Object.entries(filesWith(version, { included }))
      const own = files.map(([path, text]) => [path, text.replace(`project_id: ${PROJECT_ID}`, 'project_id: other')])
      await stage.publish(version, Object.fromEntries(own), { projectId: 'other' })
      return deployed(stage, inputs)
    },
  }
}

function at(path: string): string {
  return join(stage.root, path)
}

interface HostFile {
  installed: { kind: string; id: string; slug: string }[]
  removed?: RemovedRow[]
}

function readRecord(): HostFile {
  return JSON.parse(readFileSync(at('.hub-deploy/installed.json'), 'utf8'))
}

/** The retained snapshots of removed parts, each with the kept paths that it contains. */
function retained(): unknown[] {
  return (readRecord().removed ?? []).map(({ kind, id, slug, snapshots }) => [
    `${kind} ${id} of ${slug}`,
    snapshots.map(({ name, kept_paths: kept }) => (kept === undefined ? name : `${name} with ${kept.join(', ')}`)),
  ])
}

describe('a part that a new version of a project no longer includes', () => {
  it('is removed with its row, and its last version is retained', { skip: ONLY_IN_CI }, async () => {
    await beginWithFirst()
    const mailer = installedRows(stage)['service mailer']
    const result = await update('2.0.0', { included: WITHOUT_MAILER })
    assert.deepEqual(changesOf(result), ['true', '1.0.0', '2.0.0'])
    assert.ok(!existsSync(at('extensions/mailer')))
    assert.deepEqual(Object.keys(installedRows(stage)), ['plugin cart', 'plugin till'])
    assert.deepEqual(retained(), [[`service mailer of ${PROJECT_ID}`, ['1-1.0.0']]])
    const snapshot = at('.hub-deploy/snapshots/extensions/mailer/1-1.0.0/run.sh')
    assert.equal(readFileSync(snapshot, 'utf8'), 'echo 1.0.0\n')
    assert.ok(listOwn(stage, 'trees').includes(`${mailer?.tree_record}.tree`))
    await assertSettled(stage.root, () => stage.deploy())
  })

  it('is named in the log, the summary and the local report', { skip: ONLY_IN_CI }, async () => {
    await beginWithFirst()
    const result = await update('2.0.0', { included: WITHOUT_MAILER })
    const report = readLocalReport(result)
    assert.deepEqual(
      report.steps.map(({ id, action, status }) => [id, action, status]),
      [
        ['extensions/mailer', 'remove', 'done'],
        ['cart', 'install_plugin', 'done'],
        ['till', 'install_plugin', 'done'],
      ],
    )
    assert.deepEqual(
      report.plugins?.map(({ id }) => id),
      ['cart', 'till'],
    )
    assert.match(result.summary, /<code>extensions\/mailer<\/code> remove \| 1\.0\.0 removed/)
    assert.match(commandsIn(result.log, 'notice').join(), /extensions\/mailer \(1\.0\.0\) was removed/)
  })

  it('stays as a snapshot even when the plan retains nothing, with everything in its directory', async () => {
    await update('1.0.0', { snapshot: false })
    rmSync(at('extensions/mailer'), { recursive: true })
    writeFiles(stage.root, { 'extensions/mailer/mine.txt': 'made by hand' })
    await update('2.0.0', { included: WITHOUT_MAILER, snapshot: false })
    assert.deepEqual(retained(), [[`service mailer of ${PROJECT_ID}`, ['1-unknown']]])
    assert.equal(readFileSync(at('.hub-deploy/snapshots/extensions/mailer/1-unknown/mine.txt'), 'utf8'), 'made by hand')
  })

  it('is not moved when the files of the host in it could not be restored later', async () => {
    await beginWithFirst()
    const elsewhere = at('elsewhere')
    renameSync(at('extensions/mailer'), elsewhere)
    writeFiles(elsewhere, { 'data/queue': '17 letters' })
    symlinkSync('../elsewhere', at('extensions/mailer'))
    await stage.publish('2.0.0', filesWith('2.0.0', { included: WITHOUT_MAILER }))
    const { outputs } = await stage.deploy()
    assert.deepEqual(
      [outputs['outcome'], outputs['error-code'], outputs['failed-step']],
      ['failed', 'step_failed', 'extensions/mailer'],
    )
    assert.equal(readlinkSync(at('extensions/mailer')), '../elsewhere')
    assert.deepEqual(Object.keys(installedRows(stage)).length, 3)
  })

  it('gets its own data and versions back after another project has used its directory', {
    skip: ONLY_IN_CI,
  }, async () => {
    await beginWithFirst()
    const other = await secondProject()
    writeFiles(stage.root, { 'extensions/mailer/data/queue': 'of the first' })
    await update('2.0.0', { included: WITHOUT_MAILER })
    const { log } = await other.update('0.9.0', ['cart', 'mailer'])
    assert.match(
      commandsIn(log, 'notice').join(),
      /1-1\.0\.0 of extensions\/mailer contains kept paths of shop \(data\)/,
    )
    await other.update('1.0.0', ['cart', 'mailer'])
    writeFiles(stage.root, { 'extensions/mailer/data/queue': 'of the second' })
    await other.update('1.1.0', ['cart'])
    await other.update('1.2.0', ['cart', 'mailer'])
    assert.equal(readFileSync(at('extensions/mailer/data/queue'), 'utf8'), 'of the second')
    await other.update('1.3.0', ['cart'])
    await update('3.0.0', { included: ['till', 'mailer'] })
    assert.equal(readFileSync(at('extensions/mailer/data/queue'), 'utf8'), 'of the first')
  })

  it('gets the files of the host back when it returns, whatever the plan retains', async () => {
    await update('1.0.0', { snapshot: false })
    writeFiles(stage.root, {
      'extensions/mailer/data/queue': '17 letters',
      'extensions/mailer/.env': 'A=1\n',
      'extensions/mailer.env': 'B=2\n',
    })
    const { log } = await update('2.0.0', { included: WITHOUT_MAILER, snapshot: false })
    assert.deepEqual(retained(), [[`service mailer of ${PROJECT_ID}`, ['1-1.0.0 with .env, data']]])
    assert.match(commandsIn(log, 'notice').join(), /extensions\/mailer\.env is yours and stays/)
    assert.match(commandsIn(log, 'notice').join(), /of extensions\/mailer contains files of this host \(\.env, data\)/)
    assert.match(log, /1-1\.0\.0 of extensions\/mailer stays: it contains this host's \.env, data/)
    await update('3.0.0', { snapshot: false })
    assert.deepEqual(runningParts(stage), ['3.0.0', '3.0.0', '3.0.0'])
    assert.equal(readFileSync(at('extensions/mailer/data/queue'), 'utf8'), '17 letters')
    assert.equal(readFileSync(at('extensions/mailer/.env'), 'utf8'), 'A=1\n')
    assert.equal(readFileSync(at('extensions/mailer.env'), 'utf8'), 'B=2\n')
    assert.deepEqual(retained(), [])
    assert.deepEqual(
      installedRows(stage)['service mailer']?.snapshots.map(row => row.kept_paths),
      [undefined],
    )
  })

  it('keeps the files of the host however many versions follow', { skip: ONLY_IN_CI }, async () => {
    await beginWithFirst()
    writeFiles(stage.root, { 'extensions/mailer/other/queue': '17 letters' })
    await stage.publish('2.0.0', filesWith('2.0.0', { included: WITHOUT_MAILER }))
    await deployed(stage, { 'keep-paths': 'other' })
    for (const version of ['3.0.0', '4.0.0', '5.0.0']) {
      await stage.publish(version, filesWith(version))
      await deployed(stage, { 'keep-snapshots': '1' })
    }
    assert.deepEqual(listOwn(stage, 'snapshots/extensions/mailer'), ['3-4.0.0'])
    assert.equal(readFileSync(at('extensions/mailer/other/queue'), 'utf8'), '17 letters')
  })

  it('continues the numbers of its snapshots when it comes and goes', { skip: ONLY_IN_CI }, async () => {
    for (const version of ['1.0.0', '2.0.0', '3.0.0', '4.0.0', '5.0.0']) {
      const isEven = Number.parseInt(version, 10) % 2 === 0
      await stage.publish(version, filesWith(version, isEven ? { included: WITHOUT_MAILER } : {}))
      await deployed(stage, { 'keep-snapshots': '1' })
    }
    assert.deepEqual(listOwn(stage, 'snapshots/extensions/mailer'), ['2-3.0.0'])
    assert.deepEqual(
      installedRows(stage)['service mailer']?.snapshots.map(({ name }) => name),
      ['2-3.0.0'],
    )
  })

  it('returns along with the other parts when the older version is named', { skip: ONLY_IN_CI }, async () => {
    await beginWithFirst()
    await update('2.0.0', { included: WITHOUT_MAILER })
    assert.deepEqual(changesOf(await deployed(stage, { version: '1.0.0' })), ['true', '2.0.0', '1.0.0'])
    assert.deepEqual(runningParts(stage), ['1.0.0', '1.0.0', '1.0.0'])
  })

  it('loses only its row when it was removed by hand', async () => {
    await beginWithFirst()
    rmSync(at('extensions/mailer'), { recursive: true })
    const report = readLocalReport(await update('2.0.0', { included: WITHOUT_MAILER }))
    assert.deepEqual([report.steps[0]?.id, report.steps[0]?.status], ['extensions/mailer', 'unchanged'])
    assert.deepEqual([Object.keys(installedRows(stage)), retained()], [['plugin cart', 'plugin till'], []])
  })

  it('is removed even when nothing else changes, after an earlier release of the action left it behind', {
    skip: ONLY_IN_CI,
  }, async () => {
    await beginWithFirst()
    const before = readRecord().installed.filter(({ id }) => id === 'mailer')
    await update('2.0.0', { included: WITHOUT_MAILER })
    const { removed: _, ...after } = readRecord()
    const left = { ...after, installed: [...before, ...after.installed] }
    writeFileSync(at('.hub-deploy/installed.json'), JSON.stringify(left))
    renameSync(at('.hub-deploy/snapshots/extensions/mailer/1-1.0.0'), at('extensions/mailer'))
    assert.deepEqual(changesOf(await deployed(stage)), ['true', '2.0.0', '2.0.0'])
    assert.ok(!existsSync(at('extensions/mailer')))
    await assertSettled(stage.root, () => stage.deploy())
  })
})

describe('a part that a project does not remove', () => {
  it('is one that another project has taken over', async () => {
    await beginWithFirst()
    const record = readRecord()
    for (const row of record.installed) if (row.id === 'mailer') row.slug = 'other'
    writeFileSync(at('.hub-deploy/installed.json'), JSON.stringify(record))
    const before = listHost(stage.root)['extensions/mailer/run.sh']
    await update('2.0.0', { included: WITHOUT_MAILER })
    assert.equal(listHost(stage.root)['extensions/mailer/run.sh'], before)
    assert.equal(installedRows(stage)['service mailer']?.version, '1.0.0')
  })

  it('is one that the new version includes but its plan does not install, with a warning', {
    skip: ONLY_IN_CI,
  }, async () => {
    await beginWithFirst()
    const more = { 'extensions/mailer/run.sh': 'echo 2.0.0\n' }
    const { log } = await update('2.0.0', { included: WITHOUT_MAILER, more })
    assert.deepEqual(runningParts(stage), ['2.0.0', '2.0.0', '1.0.0'])
    assert.equal(installedRows(stage)['service mailer']?.project_version, '1.0.0')
    assert.match(commandsIn(log, 'warning').join(), /extensions\/mailer came with version 1\.0\.0/)
  })
})
