import { createHash, randomUUID } from 'node:crypto'
import { type IncomingMessage, request } from 'node:http'

/** Hosts that deploy at the same time. Each host makes its deployments one after the other. */
export interface Hosts {
  readonly count: number
  /** The number of deployments of each host. */
  readonly deployments: number
  readonly downloads: boolean
}

/** Resolves when every host has made all its deployments. The error of a failed deployment goes into the tally. */
export async function runHosts(target: Target, { count, deployments, downloads }: Hosts): Promise<Tally> {
  const tally = newTally()
  const run = async (hostId: string) => {
    for (let n = 0; n < deployments; n++)
      await deploy(target, { hostId, downloads }, tally).catch(error => tally.errors.push(error.message))
  }
  const name = downloads ? 'downloads' : 'reports'
  await Promise.all(Array.from({ length: count }, (_, n) => run(`${name}-${n}`)))
  return tally
}

/** A plugin or project to deploy from a hub, with the credentials that a host needs. */
export type Target = MarketplaceTarget | ProjectTarget

interface Published {
  readonly hubUrl: string
  readonly version: string
  readonly sha256: string
}

export interface MarketplaceTarget extends Published {
  readonly contract: 'marketplace'
  readonly slug: string
  readonly apiKey: string
}

export interface ProjectTarget extends Published {
  readonly contract: 'project'
  readonly projectId: string
  readonly devkey: string
  readonly credential: string
}

interface Deployment {
  readonly hostId: string
  /** False if the host already has the target's version. */
  readonly downloads: boolean
}

/** Makes every call of a deployment, in order, and adds each call to the tally. Rejects if a call fails. */
export async function deploy(target: Target, deployment: Deployment, tally: Tally): Promise<void> {
  if (target.contract === 'marketplace') await deployPlugin(target, deployment, tally)
  else await deployProject(target, deployment, tally)
}

async function deployPlugin(target: MarketplaceTarget, { hostId, downloads }: Deployment, tally: Tally): Promise<void> {
  const { hubUrl, slug, version, sha256 } = target
  const headers = { 'X-API-Key': target.apiKey }
  const started_at = now()
  await makeCall(tally, { name: 'detail', url: `${hubUrl}/plugins/${slug}`, status: 200 })
  if (downloads)
    await makeCall(tally, {
      name: 'download',
      url: `${hubUrl}/plugins/${slug}/install?version=${version}`,
      headers,
      status: 200,
      sha256,
    })
  const times = { started_at, completed_at: now() }
  const report = { kind: 'plugin', slug, version, status: 'success', ...times, host_id: hostId }
  const json = { ...report, repo: `owner/${slug}@${version}`, error_message: null }
  await makeCall(tally, {
    name: 'report',
    url: `${hubUrl}/deployments/report`,
    method: 'POST',
    headers,
    json,
    status: 201,
  })
}

async function deployProject(target: ProjectTarget, { downloads }: Deployment, tally: Tally): Promise<void> {
  const { hubUrl, projectId, version, sha256 } = target
  const started_at = now()
  const post = (name: string, path: string, json: object, headers = {}) =>
    makeCall(tally, { name, url: hubUrl + path, method: 'POST', headers, json, status: path === REPORT ? 201 : 200 })
  const login = await post('login', '/v1/auth', { xdevkey: target.devkey, project_id: projectId })
  const headers = { Authorization: `Bearer ${JSON.parse(login.body).access_token}` }
  const project = `${hubUrl}/v1/projects/${projectId}`
  await makeCall(tally, { name: 'latest', url: `${project}/versions/latest`, headers, status: 200 })
  const found = await makeCall(tally, {
    name: 'artifact',
    url: `${project}/artifacts/${version}`,
    headers,
    status: 200,
  })
  const { download_url, signature } = JSON.parse(found.body)
  if (downloads) await makeCall(tally, { name: 'download', url: download_url, status: 200, sha256 })
  const authorization = { deployment_credential: target.credential, artifact_signature: signature }
  await post('authorize', '/v1/deployments/authorize', authorization, headers)
  const times = { started_at, completed_at: now() }
  const ids = { project_id: projectId, deployment_id: randomUUID() }
  await post('report', REPORT, { ...ids, status: 'success', version, ...times, plugins: [] }, headers)
}

const REPORT = '/v1/deployments/report'

function now(): string {
  return new Date().toISOString()
}

/** The results of hosts: the milliseconds of each call, by the call's name, and the errors. */
export interface Tally {
  readonly calls: Record<string, number[]>
  readonly errors: string[]
}

/** A call whose answer must have this status and, if `sha256` is given, a body with this digest. */
interface ExpectedCall extends Call {
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

interface Call {
  readonly url: string
  readonly method?: 'GET' | 'POST'
  readonly headers?: Readonly<Record<string, string>>
  readonly json?: object
}

/** An answer, and the milliseconds from the call until the answer's first byte and until its end. */
interface Answer {
  readonly status: number
  readonly headers: IncomingMessage['headers']
  /** Only the start of a body that is longer than 64 KiB. */
  readonly body: string
  readonly sha256: string
  readonly firstByteMs: number
  readonly endMs: number
}

const KEPT_BYTES = 64 * 1024

/** Sends one request on a separate connection, as another host would. Rejects if the answer is missing or cut off. */
function timedRequest({ url, method = 'GET', headers = {}, json }: Call): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const startedAt = performance.now()
    const type = json === undefined ? {} : { 'Content-Type': 'application/json' }
    const sent = request(url, { agent: false, method, headers: { ...headers, ...type } }, response => {
      read(response, startedAt).then(resolve, reject)
    })
    sent.on('error', reject)
    sent.end(json === undefined ? undefined : JSON.stringify(json))
  })
}

async function read(response: IncomingMessage, startedAt: number): Promise<Answer> {
  const digest = createHash('sha256')
  const kept: Buffer[] = []
  let length = 0
  let firstByteMs: number | undefined
  for await (const chunk of response as AsyncIterable<Buffer>) {
    firstByteMs ??= performance.now() - startedAt
    digest.update(chunk)
    if (length < KEPT_BYTES) kept.push(chunk)
    length += chunk.length
  }
  const endMs = performance.now() - startedAt
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: Buffer.concat(kept).toString(),
    sha256: digest.digest('hex'),
    firstByteMs: firstByteMs ?? endMs,
    endMs,
  }
}
