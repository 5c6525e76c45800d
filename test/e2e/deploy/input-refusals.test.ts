import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { acceptedReports, commandsIn, listOwn } from '../harness/evidence.ts'
import { assertNoSecret, assertRefuses, REFUSED_PLANS } from '../harness/refusal.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: Stage

/** A host that runs 1.0.0, and a hub whose latest version is 2.0.0. */
before(async () => {
  stage = await openStage()
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
  assert.equal((await stage.deploy()).exitCode, 0)
  await stage.publish('2.0.0', pluginFiles('2.0.0'))
})

after(() => stage.close())

describe('an unusable input', () => {
  it('is listed together with all other missing inputs', async () => {
    const required = ['hub-url', 'slug', 'api-key', 'signing-secret']
    const empty = Object.fromEntries(required.map(name => [name, '']))
    const refusal = { code: 'missing_input', during: 'pending', reported: false } as const
    const { log } = await assertRefuses(stage, refusal, { ...empty, 'keep-snapshots': 'many' })
    for (const name of [...required, 'keep-snapshots'])
      assert.match(commandsIn(log, 'error')[0] ?? '', new RegExp(name))
  })

  it('leaves its local report in the temporary folder when the missing input is the project root', async () => {
    const result = await stage.deploy({ 'project-root': '' })
    assert.deepEqual(
      [result.exitCode, result.outputs['error-code'], result.outputs['report-path'], result.outputs['outcome']],
      [1, 'missing_input', reportOutside(result), 'failed'],
    )
    assert.equal(commandsIn(result.log, 'error').length, 1)
    assertNoSecret(stage, result)
  })

  const malformed: Record<string, string> = {
    'allow-downgrade': 'perhaps',
    'allow-http': '1',
    'artifact-sha256': 'abc',
    'ca-file': 'no-such.pem',
    'deployments-url': 'ftp://hub.example',
    'dry-run': 'yes please',
    'host-config': 'no-such.yaml',
    'host-id': 'two\nlines',
    'hub-url': 'https://user@hub.example',
    'install-plan': 'no-such.yaml',
    'keep-paths': '../outside',
    'keep-snapshots': '-1',
    kind: 'theme',
    'lock-timeout-seconds': 'never',
    'max-artifact-bytes': '0',
    'max-entries': '1e3',
    'max-extracted-bytes': '12 MiB',
    'services-url': 'not a URL',
    slug: '../greeter',
    'timeout-minutes': '0',
    version: 'v1/../2',
  }

  it('is listed together with all other malformed inputs', async () => {
    const refusal = { code: 'invalid_input', during: 'pending', reported: false } as const
    const { log } = await assertRefuses(stage, refusal, malformed)
    for (const name of Object.keys(malformed)) assert.match(commandsIn(log, 'error')[0] ?? '', new RegExp(name))
  })

  it('is reported when the hub is known', async () => {
    await assertRefuses(stage, { code: 'invalid_input', during: 'pending' }, { 'artifact-sha256': 'abc' })
  })

  it('is reported even without a project root, which is not created', async () => {
    const root = join(stage.root, 'not/there')
    const result = await stage.deploy({ 'artifact-sha256': 'abc', 'project-root': root, 'host-id': 'host-2' })
    assert.deepEqual(
      [result.exitCode, result.outputs['error-code'], result.outputs['reported'], result.outputs['report-path']],
      [1, 'invalid_input', 'true', reportOutside(result)],
    )
    assert.equal(existsSync(join(stage.root, 'not')), false)
    assert.equal(acceptedReports(stage).findLast(row => row.host_id === 'host-2')?.status, 'failed')
  })

  const unreported = { kind: 'theme', slug: '../greeter', 'host-id': 'two\nlines', 'dry-run': 'yes please' }
  for (const [name, value] of sampled(Object.entries(unreported), 2)) {
    it(`is not reported under a guessed name: ${name}`, async () => {
      await assertRefuses(stage, { code: 'invalid_input', during: 'pending', reported: false }, { [name]: value })
      assert.deepEqual(listOwn(stage, 'outbox'), [])
    })
  }

  it('is reported without a version when the version is malformed', async () => {
    await assertRefuses(stage, { code: 'invalid_input', during: 'pending' }, { version: 'v1/../2' })
    assert.equal(acceptedReports(stage).at(-1)?.version, 'unknown')
  })

  it('may be an api-key of two lines, which is never shown', async () => {
    const refusal = { code: 'invalid_input', during: 'pending', reported: false } as const
    await assertRefuses(stage, refusal, { 'api-key': 'secret key\nof two lines' })
  })

  it('may be a project root that is not absolute', async () => {
    const result = await stage.deploy({ 'project-root': 'srv/app' })
    assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'invalid_input'])
  })
})

describe('an invalid plan', () => {
  for (const [name, { plan, at }] of sampled(Object.entries(REFUSED_PLANS), 4)) {
    it(`is annotated at its lines: ${name}`, async () => {
      stage.writePlan(plan)
      const during = name.includes('artifact') ? 'loading_plan' : 'pending'
      const refusal = { code: 'invalid_plan', during, annotations: at.length } as const
      const { log } = await assertRefuses(stage, refusal)
      stage.writePlan(PLUGIN_PLAN)
      const places = commandsIn(log, 'error').map(line => /file=(.*?),line=(\d+),col=(\d+)/.exec(line)?.slice(1, 4))
      assert.deepEqual(
        places,
        at.map(([line, column]) => ['install.yaml', String(line), String(column)]),
      )
    })
  }

  it('is annotated at ten lines at most; the log lists the rest', { skip: ONLY_IN_CI }, async () => {
    const more = Array.from({ length: 12 }, (_, index) => `  - {id: s${index}, action: run}\n`)
    stage.writePlan(`${PLUGIN_PLAN}${more.join('')}`)
    const { log } = await assertRefuses(stage, { code: 'invalid_plan', during: 'pending', annotations: 10 })
    stage.writePlan(PLUGIN_PLAN)
    assert.match(log, /install\.yaml:18:/)
  })

  it('is annotated at its first line when it is too large or not UTF-8', async () => {
    for (const bytes of [Buffer.alloc(300 * 1024, '#'), Buffer.from([0x23, 0xff])]) {
      writeFileSync(join(stage.workspace.path, 'install.yaml'), bytes)
      const { log } = await assertRefuses(stage, { code: 'invalid_plan', during: 'pending' })
      assert.match(commandsIn(log, 'error')[0] ?? '', /file=install\.yaml,line=1,col=1/)
    }
    stage.writePlan(PLUGIN_PLAN)
  })

  it('is annotated in the host config if the mistake is there', async () => {
    writeFileSync(join(stage.workspace.path, 'host.yaml'), 'version: 1\nsupervisor: magic\n')
    const refusal = { code: 'invalid_host_config', during: 'pending' } as const
    const { log } = await assertRefuses(stage, refusal, { 'host-config': 'host.yaml' })
    assert.match(commandsIn(log, 'error')[0] ?? '', /file=host\.yaml,line=2,col=13/)
  })
})

/** The path of the report of a run that has no project root. */
function reportOutside({ outputs }: ActionResult): string {
  const path = join(stage.workspace.temp, `hub-deploy-report-${outputs['deployment-id']}.json`)
  assert.equal(JSON.parse(readFileSync(path, 'utf8')).error.code, outputs['error-code'])
  return path
}
