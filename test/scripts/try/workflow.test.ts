import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import type { OperatorFile } from '../../../scripts/try/operator-files.ts'
import type { Part } from '../../../scripts/try/part.ts'
import { workflowLines } from '../../../scripts/try/workflow.ts'

const ACTION = join(import.meta.dirname, '../../../action.yml')
const PLAN: OperatorFile = { input: 'install-plan', path: 'deploy/install.yaml', text: '' }
const PART: Part = { kind: 'plugin', slug: 'greeter', version: '1.0.0', folder: '/nowhere', isSigned: true }

const inputs: Record<string, { required?: boolean }> = parse(readFileSync(ACTION, 'utf8')).inputs

describe('the workflow for a real host', () => {
  const rows: readonly (readonly [string, Part, readonly OperatorFile[]])[] = [
    ['a signed plugin', PART, []],
    ['a service with a plan', { ...PART, kind: 'service', slug: '1e3', isSigned: false }, [PLAN]],
  ]
  for (const [what, part, files] of rows) {
    it(`gives the action all that it needs for ${what}, and only inputs that it has`, () => {
      const { jobs } = parse(workflowLines(part, files).join('\n'))
      const { with: given } = jobs.deploy.steps.at(-1)
      assert.equal(given.slug, part.slug)
      assert.deepEqual(
        Object.keys(given).filter(name => !(name in inputs)),
        [],
      )
      const required = Object.entries(inputs).flatMap(([name, { required }]) => (required ? [name] : []))
      assert.deepEqual(
        required.filter(name => !(name in given)),
        [],
      )
      assert.deepEqual([given.kind ?? 'plugin', given['install-plan']], [part.kind, files[0]?.path])
      assert.equal('plugin-secret-key' in given, part.isSigned)
      assert.equal(jobs.deploy.steps.length, files.length + 1)
    })
  }
})
