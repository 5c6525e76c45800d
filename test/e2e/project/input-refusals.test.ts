import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import type { ActionResult } from '../../../local/runner.ts'
import type { ErrorCode } from '../../../src/core/errors.ts'
import { sampled } from '../../extent.ts'
import { commandsIn, listHost, readLocalReport } from '../harness/evidence.ts'
import { openProjectStage, type ProjectStage } from '../harness/project-stage.ts'
import { answersOf, goodOffer, type ProjectRoute, serveUntrustedProjectHub } from '../harness/untrusted-project-hub.ts'

const ACTION = join(import.meta.dirname, '../../../project/action.yml')
const OUTPUT_NAMES = Object.keys(parse(readFileSync(ACTION, 'utf8')).outputs).toSorted()

let stage: ProjectStage
before(async () => {
  stage = await openProjectStage()
})
after(() => stage.close())

/** Runs with inputs that must be refused before the hub gets any requests but those for the report. */
async function refused(t: TestContext, code: ErrorCode, inputs: Record<string, string>): Promise<ActionResult> {
  const hub = await serveUntrustedProjectHub(t, answersOf(stage, goodOffer(stage)))
  const result = await stage.deploy({ 'hub-url': hub.url, ...inputs })
  const { outcome, 'error-code': found, plugins } = result.outputs
  assert.deepEqual([result.exitCode, outcome, found, plugins], [1, 'failed', code, '[]'], result.log)
  assert.deepEqual(Object.keys(result.outputs).toSorted(), OUTPUT_NAMES)
  assert.equal(readLocalReport(result).error?.code, code)
  const expected: ProjectRoute[] = result.outputs['reported'] === 'true' ? ['auth', 'report'] : []
  assert.deepEqual(hub.asked(), expected)
  assert.deepEqual(listHost(stage.root), {})
  return result
}

function errorOf({ log }: ActionResult): string {
  const [error, ...more] = commandsIn(log, 'error')
  assert.deepEqual(more, [])
  return error ?? ''
}

describe('unusable inputs of a project', () => {
  it('are listed together by name, and not reported without credentials', async t => {
    const names = ['devkey', 'deployment-credential', 'project-id', 'signer-public-key', 'version']
    const inputs = { ...Object.fromEntries(names.map(name => [name, ''])), 'project-id': 'a/b', version: '../x' }
    const error = errorOf(await refused(t, 'missing_input', inputs))
    for (const name of names) assert.match(error, new RegExp(`[:;] ?${name} `))
  })

  const wrong: Record<string, Record<string, string>> = {
    'a signer that is not a key': { 'signer-public-key': 'nonsense' },
    'a signer whose key accepts a signature of anything': { 'signer-public-key': Buffer.alloc(32).toString('base64') },
    'a pin that is not a digest': { 'artifact-sha256': 'latest' },
  }
  for (const [what, inputs] of sampled(Object.entries(wrong), 3)) {
    it(`are reported to the hub: ${what}`, async t => {
      const result = await refused(t, 'invalid_input', inputs)
      const [name = ''] = Object.keys(inputs)
      assert.equal(errorOf(result).split(name).length, 2)
      assert.doesNotMatch(errorOf(result), /\.;|\.\./)
      assert.equal(result.outputs['reported'], 'true')
    })
  }

  it('are not reported to a remote hub over plain http', async t => {
    const result = await refused(t, 'insecure_url', { 'hub-url': 'http://hub.example' })
    assert.equal(result.outputs['reported'], 'false')
  })

  it('never cause a deployment or a report in place of a dry run', async t => {
    for (const given of ['true', 'perhaps']) {
      const hub = await serveUntrustedProjectHub(t, answersOf(stage, goodOffer(stage)))
      const result = await stage.deploy({ 'hub-url': hub.url, 'dry-run': given })
      assert.deepEqual([result.outputs['outcome'], result.outputs['error-code']], ['failed', 'invalid_input'])
      assert.match(errorOf(result), /dry-run/)
      assert.deepEqual([result.outputs['reported'], hub.asked()], ['false', []])
      assert.equal(result.outputs['report-path'] === '', given === 'true')
    }
  })

  it('include a missing host config, which is noticed before any request to the hub', async t => {
    const result = await refused(t, 'invalid_input', { 'host-config': 'no-such-file.yaml' })
    assert.match(errorOf(result), /no-such-file/)
  })
})
