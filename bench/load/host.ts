import { randomUUID } from 'node:crypto'
import { makeCall, type Tally } from './tally.ts'

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

export interface Deployment {
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
