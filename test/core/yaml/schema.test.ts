import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { hostConfigSchema, parseHostConfig } from '../../../src/core/plan/host-config.ts'
import { parsePlan } from '../../../src/core/plan/plan.ts'
import { SourceError, type SourceProblem } from '../../../src/core/yaml/problems.ts'
import { keysOfSchema } from '../../../src/core/yaml/schema.ts'

/** Files that a path may name by mistake or on purpose; no message may repeat S3CRET. */
const others = {
  'a password file whose lines are keys': 'root:$6$S3CRET:19000:0:99999:7:::\ndaemon:*:S3CRET:0:7:::\n',
  'a file with a repeated line': 'root:S3CRET::\nroot:S3CRET::\n',
  'a private key': '-----BEGIN PRIVATE KEY-----\nS3CRET==\n-----END PRIVATE KEY-----\n',
  'a line of text': 'machine hub login me password S3CRET\n',
  'a list': '- S3CRET\n',
  'a file with an alias': '- *S3CRET\n',
  'a file with a tag': 'a: !S3CRET b\n',
  'a file with a tag of the core schema': 'a: !!S3CRET%zz b\n',
  'a file with a directive': '%S3CRET ALL=(ALL) ALL\nroot ALL\n',
  'a file with a version directive': '%YAML 1.S3CRET\n---\na: 1\n',
  'a file with a bad block header': 'a: |S3CRET\n  b\n',
  'a file with an escape': 'a: "\\uS3CRET"\n',
  'a file with a stray bracket': 'a: [S3CRET]S3CRET]\n',
  'a file with quotes inside': 'TOKEN="S3CRET" x: "S3CRET" y\n',
  'another YAML document': 'hub.example:\n  token: S3CRET\nS3CRET: 1\n',
}

const parsers: Record<string, (text: string) => unknown> = {
  parsePlan: text => parsePlan(text, 'install.yaml'),
  parseHostConfig: text => parseHostConfig(text, 'host-config.yaml'),
}

function problemsOf(parse: () => unknown): readonly SourceProblem[] {
  try {
    parse()
  } catch (error) {
    if (error instanceof SourceError) return error.problems
    throw error
  }
  return []
}

for (const [parser, parse] of Object.entries(parsers)) {
  describe(`${parser}, given another file`, () => {
    for (const [name, text] of Object.entries(others)) {
      it(`refuses ${name} and quotes nothing from it`, () => {
        const problems = problemsOf(() => parse(text))
        assert.notEqual(problems.length, 0)
        for (const { message } of problems) assert.doesNotMatch(message, /S3CRET/)
      })
    }

    it('still suggests the intended keys when every key is mistyped', () => {
      const problems = problemsOf(() => parse('versoin: 1\n'))
      assert.ok(problems.some(({ message }) => message.includes('did you mean "version"?')))
    })
  })
}

describe('keysOfSchema', () => {
  const cases: [path: string[], keys: string[]][] = [
    [['docker'], ['container']],
    [['plugins'], []],
    [
      ['plugins', 'a'],
      ['unit', 'container', 'deployment', 'healthcheck'],
    ],
    [
      ['notify', 'deployed'],
      ['command', 'env', 'timeout'],
    ],
    [['supervisor'], []],
    [['unknown', 'key'], []],
    [['__proto__', 'key'], []],
  ]
  for (const [path, keys] of cases)
    it(`returns ${keys.length === 0 ? 'no keys' : keys.join(', ')} for ${path.join('.')}`, () =>
      assert.deepEqual(keysOfSchema(hostConfigSchema, path), keys))
})
