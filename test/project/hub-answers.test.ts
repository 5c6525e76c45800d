import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { z } from 'zod/mini'
import {
  ArtifactError,
  AuthenticationError,
  type DeployError,
  DeploymentError,
  type ErrorCode,
} from '../../src/core/errors.ts'
import type { JsonAnswer } from '../../src/net/wire.ts'
import { type HubCall, parseAnswer, projectRefusal } from '../../src/project/hub.ts'

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
  return projectRefusal({ call, subject: 'project shop' }, { status, body, url: 'https://hub.example/x?token=SIGNED' })
}

describe('projectRefusal', () => {
  it('advises trying again only after a status that may pass', () => {
    const statuses = [302, 400, 405, 408, 410, 422, 429, 500, 503]
    const passing = statuses.filter(status => /Try again later/.test(refuse('latest', status, {}).message))
    assert.deepEqual(passing, [408, 429, 500, 503])
  })

  it('bases its advice on what the hub refused: the token, the call or the download_url', () => {
    for (const [call, status, advice] of [
      ['latest', 401, /The hub refused its own access token: devkey may have been revoked\./],
      ['report', 401, /The hub refused its own access token: /],
      ['latest', 403, /The hub accepted the token but does not allow this: /],
      ['download', 403, /Run again, for a fresh download_url; if that fails too, /],
      ['download', 404, /Run again, for a fresh download_url; if that fails too, /],
      ['authorize', 401, /Check deployment-credential and devkey: /],
      ['authorize', 403, /Check deployment-credential: /],
      ['artifact', 404, /Check project-id, version and hub-url\./],
      ['latest', 404, /Check project-id and hub-url\./],
      ['report', 404, /Check project-id and hub-url\./],
    ] as const)
      assert.match(refuse(call, status, {}).message, advice)
  })

  for (const [call, statuses, type, code] of ROWS) {
    for (const status of statuses) {
      it(`turns ${status} from ${call} into ${type.name} ${code} (contract 7)`, () => {
        const error = refuse(call, status, { error: 'because of this' })
        assert.equal(error.constructor, type)
        assert.equal(error.code, code)
        assert.match(error.message, new RegExp(`\\b${status}\\b.*because of this`))
      })
    }
  }

  const bodies: Record<string, [unknown, RegExp]> = {
    'nothing without a body': [undefined, /answered 500\./],
    'nothing from HTML': ['<h1>no</h1>', /answered 500\./],
    'nothing from a list': [[{ error: 'x' }], /answered 500\./],
    'nothing when error is null': [{ error: null }, /answered 500\./],
    'detail if there is no error': [{ error: null, detail: 'why', message: 'other' }, /answered 500 \(why\)/],
    'a detail that is a list as JSON': [{ detail: [{ msg: 'x' }] }, /answered 500 \(\[\{"msg":"x"\}\]\)/],
    'message if the others are empty': [{ error: '', detail: null, message: 'why' }, /answered 500 \(why\)/],
    'message if there is neither': [{ message: 'why' }, /answered 500 \(why\)/],
    'error before detail and message': [{ message: 'm', detail: 'd', error: 'why' }, /answered 500 \(why\)/],
    'an error that is not text as JSON': [{ error: { code: 7 } }, /answered 500 \(\{"code":7\}\)/],
  }
  for (const [name, [body, said]] of Object.entries(bodies)) {
    it(`quotes ${name}`, () => assert.match(refuse('latest', 500, body).message, said))
  }

  it('quotes clean text of limited length, and no query of the URL', () => {
    const error = `\u001b[31m::error::x\r\n##[group]${'y'.repeat(5000)}`
    const { message } = refuse('download', 500, { error })
    assert.doesNotMatch(message, /[\p{Cc}]|SIGNED/u)
    assert.match(message, /https:\/\/hub\.example /)
    assert.ok(message.length < 1000)
  })

  it('names the route, but only the origin of a download_url, because its path gives access to the download', () => {
    assert.match(refuse('latest', 500, {}).message, /https:\/\/hub\.example\/\S+ answered 500/)
    assert.match(refuse('download', 500, {}).message, /https:\/\/hub\.example answered 500/)
  })
})

describe('parseAnswer', () => {
  const SCHEMA = z.object({ token: z.string() })

  it('returns the content of a 2xx answer', () => {
    const call = { call: 'latest', subject: 'project shop' } as const
    for (const status of [200, 201, 299]) assert.deepEqual(parseAnswer(call, answerOf(status), SCHEMA), { token: 'T1' })
  })

  for (const call of ['auth', 'latest', 'artifact', 'authorize'] as const) {
    const other = call === 'auth' ? DeploymentError : ArtifactError

    it(`refuses an unexpected body from ${call} as bad_response, in the class of the call's other errors`, () => {
      for (const body of [[], null, { token: 7 }]) {
        const error = thrownBy(() => parseAnswer({ call, subject: 'project shop' }, answerOf(200, body), SCHEMA))
        assert.equal(error.constructor, other)
        assert.equal(error.code, 'bad_response')
      }
    })

    it(`refuses a status other than 2xx from ${call} with the error of contract 7`, () => {
      for (const status of [199, 300, 500]) {
        const error = thrownBy(() => parseAnswer({ call, subject: 'project shop' }, answerOf(status), SCHEMA))
        assert.deepEqual([error.constructor, error.code], [other, 'artifact_unavailable'])
      }
    })
  }

  it('names the field that is wrong, and quotes nothing from the answer', () => {
    const call = { call: 'auth', subject: 'project shop' } as const
    const { message } = thrownBy(() => parseAnswer(call, answerOf(200, { token: ['hunter22'] }), SCHEMA))
    assert.match(message, /"token"/)
    assert.doesNotMatch(message, /hunter22|SIGNED/)
  })
})

function answerOf(status: number, body: unknown = { token: 'T1' }): JsonAnswer {
  const text = JSON.stringify(body) ?? ''
  return { status, body, headers: {}, url: 'https://hub.example/x?token=SIGNED', decoded: text, text, attempts: 1 }
}

function thrownBy(act: () => unknown): DeployError {
  try {
    act()
  } catch (error) {
    return error as DeployError
  }
  return assert.fail('nothing was refused')
}
