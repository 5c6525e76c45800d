import { type Answer, type Call, timedRequest } from './timed-request.ts'

/** The results of hosts: the milliseconds of each call, by the call's name, and the errors. */
export interface Tally {
  readonly calls: Record<string, number[]>
  readonly errors: string[]
}

/** A call whose answer must have this status and, if `sha256` is given, a body with this digest. */
export interface ExpectedCall extends Call {
  readonly name: string
  readonly status: number
  readonly sha256?: string
}

export function newTally(): Tally {
  return { calls: {}, errors: [] }
}

/**
 * Makes a call and adds its time to the tally. For a call with `sha256`, this is the time until the first byte of the
 * answer; for any other call, the time until the answer's end. Rejects if there is no answer or a wrong one.
 */
export async function makeCall(tally: Tally, { name, status, sha256, ...call }: ExpectedCall): Promise<Answer> {
  const answer = await timedRequest(call).catch(error => {
    throw new Error(`${name}: ${error.code ?? error.message}`)
  })
  if (answer.status !== status)
    throw new Error(`${name}: the hub answered ${answer.status}, not ${status}: ${answer.body.slice(0, 200)}`)
  if (sha256 !== undefined && answer.sha256 !== sha256)
    throw new Error(`${name}: the hub served bytes with the sha256 ${answer.sha256}, not ${sha256}`)
  tally.calls[name] ??= []
  tally.calls[name].push(sha256 === undefined ? answer.endMs : answer.firstByteMs)
  return answer
}

/** Adds the results in the second tally to the first. */
export function addTally(to: Tally, { calls, errors }: Tally): void {
  for (const [name, each] of Object.entries(calls)) to.calls[name] = [...(to.calls[name] ?? []), ...each]
  to.errors.push(...errors)
}
