import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import {
  ArtifactError,
  AuthenticationError,
  type DeployError,
  DeploymentError,
  type ErrorCode,
} from '../../src/core/errors.ts'
import { type HubCall, malformedAnswer, refusalOf } from '../../src/project/answers.ts'

type Row = [call: HubCall, statuses: number[], type: new (...args: never[]) => DeployError, code: ErrorCode]

/** Contract 7, row by row. */
const ROWS: Row[] = [
  ['auth', [401, 403], AuthenticationError, 'authentication_failed'],
  ['authorize', [401, 403], AuthenticationError, 'authentication_failed'],
  ['auth', [302, 400, 409, 429, 500, 503], DeploymentError, 'artifact_unavailable'],
  ['auth', [404], DeploymentError, 'not_found'],
  ['report', [302, 400, 401, 403, 404, 422, 500, 503], DeploymentError, 'report_refused'],
  ['latest', [302, 400, 401, 403, 410, 500], ArtifactError, 'artifact_unavailable'],
  ['artifact', [302, 400, 401, 403, 410, 500], ArtifactError, 'artifact_unavailable'],
  ['download', [400, 401, 403, 410, 500], ArtifactError, 'artifact_unavailable'],
  ['authorize', [302, 400, 402, 409, 500], ArtifactError, 'artifact_unavailable'],
  ['latest', [404], ArtifactError, 'not_found'],
  ['artifact', [404], ArtifactError, 'not_found'],
  ['download', [404], ArtifactError, 'not_found'],
  ['authorize', [404], ArtifactError, 'not_found'],
]

function refuse(call: HubCall, status: number, body: unknown): DeployError {
  return refusalOf(call, { status, body, url: 'https://hub.example/x?token=SIGNED' }, 'project shop')
}

describe('refusalOf', () => {
  for (const [call, statuses, type, code] of ROWS) {
    for (const status of statuses) {
      it(`makes ${status} of ${call} a ${type.name} ${code} (contract 7)`, () => {
        const error = refuse(call, status, { error: 'because of this' })
        assert.equal(error.constructor, type)
        assert.equal(error.code, code)
        assert.match(error.message, new RegExp(`\\b${status}\\b.*because of this`))
      })
    }
  }

  const bodies: Record<string, [unknown, RegExp]> = {
    'nothing more where there is no body': [undefined, /answered 500\./],
    'nothing more of HTML': ['<h1>no</h1>', /answered 500\./],
    'nothing more of a list': [[{ error: 'x' }], /answered 500\./],
    'nothing of detail and message': [{ detail: 'x', message: 'x' }, /answered 500\./],
    'nothing more where error is null': [{ error: null }, /answered 500\./],
    'an error that is no text as JSON': [{ error: { code: 7 } }, /answered 500 \(\{"code":7\}\)/],
  }
  for (const [name, [body, said]] of Object.entries(bodies)) {
    it(`tells ${name}`, () => assert.match(refuse('latest', 500, body).message, said))
  }

  it('tells clean text, cut, and no query of the URL', () => {
    const error = `\u001b[31m::error::x\r\n##[group]${'y'.repeat(5000)}`
    const { message } = refuse('download', 500, { error })
    assert.doesNotMatch(message, /::|##\[|[\p{Cc}]|SIGNED/u)
    assert.match(message, /https:\/\/hub\.example\//)
    assert.ok(message.length < 1000)
  })
})

describe('malformedAnswer', () => {
  for (const call of ['auth', 'latest', 'artifact', 'authorize'] as const) {
    it(`is bad_response of the class of the other errors of ${call}`, () => {
      const error = malformedAnswer(call, 'a JSON object', 'project shop')
      assert.equal(error.constructor, call === 'auth' ? DeploymentError : ArtifactError)
      assert.equal(error.code, 'bad_response')
    })
  }
})
