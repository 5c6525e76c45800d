import assert from 'node:assert/strict'
import { chmodSync, cpSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { openLocalStage } from '../../../local/stage.ts'
import { readSources } from '../../../scripts/try/sources.ts'
import { openTryStage, projectAccess, releaseProject } from '../../../scripts/try/stage.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'

const EXAMPLE = join(import.meta.dirname, '../../../examples/project')

describe('the publication of a plugin', () => {
  it('is refused where the publish command refuses it', async t => {
    const folder = temporaryDirectory(t)
    const stage = await openTryStage(undefined)
    t.after(() => stage.close())
    const publish = async (version: string, given?: string) => {
      writeTree(folder, { 'plugin.yaml': `name: greeter\nversion: ${version}\n`, 'main.py': '' })
      return await stage.publish(readSources(folder, { version: given }), false)
    }
    await assert.rejects(publish('1.10'), {
      status: 400,
      message: /is the number 1\.10, which loses its final 0: quote it/,
    })
    await publish('"1.10"')
    await assert.rejects(publish('"v1.10"'), { status: 409, message: /write it as 1\.10, or raise the version/ })
    await assert.rejects(publish('"1.10" # changed'), { status: 409, message: /with different files/ })
    await publish('"2.0"', 'v2.0')
  })
})

describe('the release of a project', () => {
  it('is published once for the same files, although sealing produces different bytes', async t => {
    const { stage, release } = await openShop(t)
    const first = await release('1.0.0')
    assert.deepEqual(first.leftOut, ['README.md'])
    assert.equal((await release('1.0.0')).sha256, first.sha256)
    assert.notEqual((await release('1.0.1')).sha256, first.sha256)
    assert.equal(statSync(join(stage.folder, 'signing-key.pem')).mode & 0o777, 0o600)
  })

  it('is refused under a version that has other files, or another executable bit', async t => {
    const { source, release } = await openShop(t)
    await release('1.0.0')
    const message = /^This hub has prj_ShopExample01 1\.0\.0 with different files, .* \(--version 1\.0\.1\)\.$/
    chmodSync(join(source, 'extensions/mailer/run.sh'), 0o644)
    await assert.rejects(release('1.0.0'), { status: 409, message })
    await release('1.0.1')
    writeFileSync(join(source, 'extensions/mailer/run.sh'), '')
    await assert.rejects(release('1.0.1'), { status: 409 })
  })

  it('is signed with one key, which the operator pins', async t => {
    const { stage, project } = await openShop(t)
    const [first, second] = [projectAccess(stage, project), projectAccess(stage, project)]
    assert.equal(first['signer-public-key'], second['signer-public-key'])
    assert.notEqual(first['devkey'], second['devkey'])
  })
})

async function openShop(t: TestContext) {
  const source = join(temporaryDirectory(t), 'shop')
  cpSync(EXAMPLE, source, { recursive: true })
  const stage = await openLocalStage('try-release')
  t.after(() => stage.close())
  const project = readSources(source, {})
  if (project.kind !== 'project') assert.fail(project.kind)
  return {
    stage,
    source,
    project,
    release: (version: string) => releaseProject(stage, { ...project, version }, source),
  }
}
