import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { revokeProjectVersion } from '../../../hub/project/catalogue.ts'
import type { SealedProject } from '../../../hub/project/seal.ts'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { commandsIn, listHost, readLocalReport } from '../harness/evidence.ts'
import {
  acceptedProjectReports,
  assertKeptSecret,
  assertTemporariesGone,
  changesOf,
  deployed,
  installedRows,
  runningParts,
  snapshotsOf,
} from '../harness/project-evidence.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage, projectFiles } from '../harness/project-stage.ts'

const ONLY_IN_CI = whyLeftToCi()

/** The states of a successful run, in order. */
const STATES = [
  ...['pending', 'authenticating', 'requesting_artifact', 'downloading', 'verifying_signature', 'obtaining_key'],
  ...['decrypting', 'extracting', 'verifying_manifest', 'validating_project', 'resolving_sequence'],
  ...['installing', 'healthchecking', 'notifying', 'succeeded'],
]

let stage: ProjectStage
beforeEach(async () => {
  stage = await openProjectStage()
})
afterEach(() => stage.close())

async function publish(version: string, more: Record<string, string> = {}): Promise<SealedProject> {
  return stage.publish(version, projectFiles(version, more))
}

/** Runs a deployment that must be refused with this code and leave the host as it was. */
async function refused(code: string, inputs: Record<string, string> = {}): Promise<ActionResult> {
  const before = listHost(stage.root)
  const result = await stage.deploy(inputs)
  const { outcome, changed, 'error-code': found } = result.outputs
  assert.deepEqual([result.exitCode, outcome, changed, found], [1, 'failed', 'false', code], result.log)
  assert.deepEqual(listHost(stage.root), before)
  return result
}

/** Asserts that the run has the runner mask these secrets and exactly one more, the access token. */
function assertMasked({ log }: ActionResult, secrets: readonly string[]): void {
  const masked = commandsIn(log, 'add-mask').map(line => line.slice('::add-mask::'.length))
  assert.deepEqual(
    secrets.filter(secret => !masked.includes(secret)),
    [],
  )
  assert.equal(masked.length, secrets.length + 1)
}

describe('a project', () => {
  it('is installed with all its parts, and outputs, local report and hub agree', async () => {
    const { bytes, release } = await publish('1.0.0')
    const result = await deployed(stage)
    const { outputs } = result
    assert.deepEqual(runningParts(stage), ['1.0.0', '1.0.0', '1.0.0'])
    const plugins = [
      { id: 'cart', version: '1.0.0' },
      { id: 'till', version: '7.0.0' },
    ]
    assert.partialDeepStrictEqual(outputs, {
      changed: 'true',
      version: '1.0.0',
      'previous-version': '',
      'artifact-sha256': hash('sha256', bytes),
      'host-id': 'host-1',
      'install-path': stage.root,
      reported: 'true',
      'failed-step': '',
      'error-code': '',
      state: 'succeeded',
      'project-id': PROJECT_ID,
      plugins: JSON.stringify(plugins),
    })
    const report = readLocalReport(result)
    assert.partialDeepStrictEqual(report, {
      deployment_id: outputs['deployment-id'],
      contract: 'project',
      kind: null,
      slug: PROJECT_ID,
      id: null,
      requested_version: 'latest',
      version: '1.0.0',
      version_source: 'manifest',
      artifact_sha256: hash('sha256', bytes),
      artifact_size: bytes.length,
      signer_public_key: stage.signerPublicKey,
      status: 'success',
      plugins,
    })
    const { deployment_id, version, status, started_at, completed_at } = report
    assert.deepEqual(
      acceptedProjectReports(stage).map(({ reported_at, ...row }) => row),
      [{ project_id: PROJECT_ID, deployment_id, version, status, started_at, completed_at, plugins }],
    )
    assert.deepEqual(
      report.states.map(({ state }) => state),
      STATES,
    )
    assertMasked(result, [stage.devkey, stage.credential, release.dek])
    assertTemporariesGone(stage)
    assertKeptSecret(stage, [result.log, result.summary], [Buffer.from(release.dek, 'base64')])
  })

  it('is updated in all its parts', async () => {
    await publish('1.0.0')
    await deployed(stage)
    await publish('2.0.0')
    assert.deepEqual(changesOf(await deployed(stage)), ['true', '1.0.0', '2.0.0'])
    assert.deepEqual(runningParts(stage), ['2.0.0', '2.0.0', '2.0.0'])
    const parts = Object.entries(installedRows(stage)).map(([place, row]) => [
      place,
      row.contract,
      row.slug,
      row.version,
      row.project_version,
    ])
    assert.deepEqual(parts, [
      ['service mailer', 'project', PROJECT_ID, '2.0.0', '2.0.0'],
      ['plugin cart', 'project', PROJECT_ID, '2.0.0', '2.0.0'],
      ['plugin till', 'project', PROJECT_ID, '7.0.0', '2.0.0'],
    ])
    const places = ['plugin cart', 'plugin till', 'service mailer']
    assert.deepEqual(
      places.map(place => snapshotsOf(stage, place)),
      [['1-1.0.0'], ['1-7.0.0'], ['1-1.0.0']],
    )
  })

  it('that is already installed is left untouched', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0')
    await deployed(stage)
    const before = listHost(stage.root)
    assert.deepEqual(changesOf(await deployed(stage)), ['false', '1.0.0', '1.0.0'])
    assert.deepEqual(listHost(stage.root), before)
    assert.deepEqual(
      acceptedProjectReports(stage).map(({ status }) => status),
      ['success', 'success'],
    )
  })

  it('is downgraded to an older version that is named', { skip: ONLY_IN_CI }, async () => {
    await publish('1.0.0')
    await publish('2.0.0')
    await deployed(stage)
    assert.deepEqual(changesOf(await deployed(stage, { version: '1.0.0' })), ['true', '2.0.0', '1.0.0'])
    assert.deepEqual(runningParts(stage), ['1.0.0', '1.0.0', '1.0.0'])
  })

  it('is not downgraded to an older latest version unless the operator allows it', {
    skip: ONLY_IN_CI,
  }, async () => {
    await publish('1.0.0')
    await publish('2.0.0')
    await deployed(stage)
    revokeProjectVersion(stage.store, { project_id: PROJECT_ID, version: '2.0.0' })
    await refused('downgrade_refused')
    assert.deepEqual(changesOf(await deployed(stage, { 'allow-downgrade': 'true' })), ['true', '2.0.0', '1.0.0'])
  })

  it('is not installed from a revoked version', async () => {
    await publish('1.0.0')
    revokeProjectVersion(stage.store, { project_id: PROJECT_ID, version: '1.0.0' })
    const { log } = await refused('authentication_failed', { version: '1.0.0' })
    assert.match(commandsIn(log, 'error').join(), /403.*1\.0\.0.*was revoked/)
    assert.equal((await refused('not_found')).outputs['version'], '')
  })

  it('is refused with other bytes under the same version unless these bytes are pinned with redeploy', async () => {
    await publish('1.0.0')
    await deployed(stage)
    stage.store.db.prepare('DELETE FROM project_versions').run()
    const { bytes } = await publish('1.0.0', { 'extensions/mailer/run.sh': 'echo 1.0.0 again\n' })
    await refused('version_reused')
    await refused('version_reused', { version: '1.0.0' })
    const pin = { 'artifact-sha256': hash('sha256', bytes) }
    await refused('version_reused', pin)
    await deployed(stage, { ...pin, redeploy: 'true' })
    assert.match(readFileSync(join(stage.root, 'extensions/mailer/run.sh'), 'utf8'), /again/)
  })

  it('is accepted only with the pinned bytes', { skip: ONLY_IN_CI }, async () => {
    const { bytes } = await publish('1.0.0')
    await refused('digest_mismatch', { 'artifact-sha256': hash('sha256', 'other bytes') })
    await deployed(stage, { 'artifact-sha256': hash('sha256', bytes) })
  })
})
