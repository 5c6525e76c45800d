import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import type { TestContext } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { waitUntil } from '../../clocks.ts'
import { makeStandIns, type StandIns } from '../../install/services/stand-ins.ts'
import { serve } from '../../net/loopback-server.ts'
import { acceptedReports } from './evidence.ts'
import { filesWith, openShop } from './project-stage.ts'
import { openOldHost, planWith, versionFiles } from './stage.ts'

export type Contract = 'marketplace' | 'project'
/** A request of a run to its hub. */
export type Asked = 'auth' | 'latest' | 'artifact' | 'download' | 'authorize' | 'report'

/**
 * A host on which 1.0.0 is installed and runs under a supervisor's stand-in, and a hub that may leave requests
 * unanswered.
 */
export interface CancelScene {
  readonly contract: Contract
  /** The id of the one part that has a service. */
  readonly id: string
  readonly root: string
  readonly standIns: StandIns
  /** The requests that the hub leaves unanswered from now on; for `download`, it sends half of the bytes. */
  readonly unanswered: Set<Asked>
  /** The requests that have been left unanswered so far. */
  readonly left: Asked[]
  /**
   * The error message of each report that the hub has accepted; empty for a success. For a project, the list is empty,
   * because its reports have no messages.
   */
  errorMessages(): string[]
  /** The version and the status of each report that the hub has accepted. */
  reported(): string[]
  /** The address to which the runs report; see `ReportSender`. */
  readonly address: string
  /** Publishes 2.0.0, and has its plan run these steps after the installation. */
  publish(...steps: string[]): Promise<void>
  /** Publishes 2.1.0 with this many additional small files. */
  publishLarge(files: number): Promise<void>
  /**
   * Writes the host config. `plugin` has the keys of `plugins: {<id>: ...}` except for `unit`, and `more` has further
   * top-level lines.
   */
  configure(plugin: string, more?: string): void
  run(run?: Partial<ActionRun>, inputs?: Record<string, string>): Promise<ActionResult>
  post(state: Record<string, string>): Promise<ActionResult>
  /** The outputs that the newest run has set so far, as text. */
  outputsSoFar(): string
  /** The time of the last write to the newest run's command files or to a local report, in epoch milliseconds. */
  lastWrite(): number
  close(): Promise<void>
}

/** Shell: writes its process id to the file `here`, and hangs. */
export const HANG = 'echo $$ > here; exec sleep 3600'
/** Shell: does the same as `HANG`, but only SIGKILL ends the script. */
export const HANG_ON = "trap '' TERM; echo $$ > here; while :; do sleep 1; done"

export async function openCancelScene(t: TestContext, contract: Contract): Promise<CancelScene> {
  return contract === 'marketplace' ? await openArtifactScene(t) : await openProjectScene(t)
}

/** The file to which a stand-in's script writes its process id before it hangs. */
export function hangingFile({ standIns }: CancelScene): string {
  return join(standIns.bin, '../here')
}

/** True if a stand-in's script has begun to hang. */
export function isHanging(scene: CancelScene): boolean {
  const file = hangingFile(scene)
  return existsSync(file) && readFileSync(file, 'utf8').endsWith('\n')
}

/** Starts a run that gets SIGINT as soon as a stand-in's script hangs. */
export async function cancelledOnce(scene: CancelScene): Promise<ActionResult> {
  return await signalledOnce(scene, 'SIGINT', () => isHanging(scene))
}

/** Starts a run that gets SIGKILL as soon as `isThere` returns true. */
export async function killedOnce(scene: CancelScene, isThere: () => boolean): Promise<ActionResult> {
  return await signalledOnce(scene, 'SIGKILL', isThere)
}

async function signalledOnce(
  scene: CancelScene,
  signal: NodeJS.Signals,
  isThere: () => boolean,
): Promise<ActionResult> {
  const started = Promise.withResolvers<number>()
  const run = scene.run({ onStart: started.resolve })
  await waitUntil(`the run gets ${signal}`, isThere)
  process.kill(await started.promise, signal)
  return await run
}

async function openArtifactScene(t: TestContext): Promise<CancelScene> {
  const stage = await openOldHost()
  const gate = await openGate(t, stage.hub.url)
  const inputs = { 'hub-url': gate.url, version: 'latest' }
  const rows = () => stage.store.db.prepare('SELECT version, status FROM reports ORDER BY seq').all()
  return {
    ...gate,
    ...sceneOf('marketplace', 'greeter', stage),
    standIns: started(stage.standIns, 'greeter'),
    reported: () => rows().map(row => `${row['version']} ${row['status']}`),
    address: `${gate.url}/deployments/report plugin greeter`,
    async publish(...steps) {
      await stage.publish('2.0.0', versionFiles('2.0.0'), { replace: true })
      stage.writePlan(planWith(...steps))
    },
    async publishLarge(files) {
      await stage.publish('2.1.0', { ...versionFiles('2.1.0'), ...manyFiles('', files) })
    },
    errorMessages: () => acceptedReports(stage).map(row => row.error_message ?? ''),
    run: (run = {}, more = {}) => stage.deployHere({ ...inputs, ...more }, run),
    post: state => stage.deployHere(inputs, { phase: 'post', state }),
    close: () => stage.close(),
  }
}

async function openProjectScene(t: TestContext): Promise<CancelScene> {
  const stage = await openShop({ '1.0.0': filesWith('1.0.0') })
  const standIns = started(makeStandIns(join(stage.root, 'plugins/cart/src/main.py')), 'cart')
  const gate = await openGate(t, stage.hub.url)
  const inputs = { 'hub-url': gate.url, 'host-config': 'host-config.yaml' }
  const env = { PATH: standIns.path }
  const rows = () => stage.store.db.prepare('SELECT version, status FROM project_reports ORDER BY rowid').all()
  return {
    ...gate,
    ...sceneOf('project', 'cart', stage),
    standIns,
    reported: () => rows().map(row => `${row['version']} ${row['status']}`),
    address: `${gate.url}/v1/deployments/report shop`,
    async publish(...steps) {
      await stage.publish('2.0.0', filesWith('2.0.0', { steps }))
    },
    async publishLarge(files) {
      await stage.publish('2.1.0', filesWith('2.1.0', { more: manyFiles('plugins/cart/', files) }))
    },
    errorMessages: () => [],
    run: (run = {}, more = {}) => stage.deploy({ ...inputs, ...more }, { ...run, env: { ...env, ...run.env } }),
    post: state => stage.deploy(inputs, { phase: 'post', state, env }),
    async close() {
      standIns.close()
      await stage.close()
    },
  }
}

function manyFiles(folder: string, count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`${folder}many/${index}.txt`, `${index}\n`]))
}

function started(standIns: StandIns, id: string): StandIns {
  standIns.setState(`${id}.service`, 'active')
  for (const name of ['check', 'make-db', 'tell']) standIns.add(name, 'echo fine')
  return standIns
}

interface Place {
  readonly root: string
  readonly workspace: { readonly path: string; readonly temp: string }
}

function sceneOf(contract: Contract, id: string, { root, workspace }: Place) {
  const newest = (): string =>
    readdirSync(workspace.temp)
      .filter(name => name.startsWith('commands-'))
      .map(name => join(workspace.temp, name))
      .toSorted((a, b) => statSync(b).ctimeMs - statSync(a).ctimeMs)[0] ?? ''
  return {
    contract,
    id,
    root,
    configure(plugin: string, more = '') {
      const text = `version: 1\nsupervisor: systemd\nplugins: {${id}: {unit: ${id}.service, ${plugin}}}\n${more}`
      writeFileSync(join(workspace.path, 'host-config.yaml'), text)
    },
    outputsSoFar: () => (existsSync(newest()) ? readFileSync(join(newest(), 'output'), 'utf8') : ''),
    lastWrite() {
      const files = ['output', 'summary', 'state'].map(name => join(newest(), name))
      const reports = readdirSync(join(root, '.hub-deploy/reports')).map(name =>
        join(root, '.hub-deploy/reports', name),
      )
      return Math.max(...[...files, ...reports].map(path => statSync(path).mtimeMs))
    },
  }
}

/**
 * A proxy to the hub. The proxy leaves the requests in `unanswered` without an answer. In JSON, it replaces the hub's
 * URL with its own URL, so that downloads pass through it, too.
 */
async function openGate(t: TestContext, hubUrl: string) {
  const unanswered = new Set<Asked>()
  const left: Asked[] = []
  const gate: { url: string } = await serve(t, async (request, response) => {
    const asked = askedFor(request)
    const body = await buffer(request)
    if (unanswered.has(asked)) left.push(asked)
    if (unanswered.has(asked) && asked !== 'download') return
    const answer = await ask(`${hubUrl}${request.url}`, request, body)
    const bytes = Buffer.from(await answer.arrayBuffer())
    const isJson = answer.headers.get('content-type')?.includes('json') === true
    const sent = isJson ? Buffer.from(bytes.toString().replaceAll(hubUrl, gate.url)) : bytes
    send({ response, answer, bytes: sent, isCut: unanswered.has(asked) })
  })
  return { url: gate.url, unanswered, left }
}

async function ask(url: string, { method = 'GET', headers }: IncomingMessage, body: Buffer): Promise<Response> {
  const names = ['x-api-key', 'authorization', 'content-type', 'accept']
  const sent = names.flatMap(name => (headers[name] === undefined ? [] : [[name, String(headers[name])] as const]))
  return await fetch(url, { method, headers: Object.fromEntries(sent), body: method === 'GET' ? null : body })
}

interface Sending {
  readonly response: ServerResponse
  readonly answer: Response
  readonly bytes: Buffer
  readonly isCut: boolean
}

function send({ response, answer, bytes, isCut }: Sending): void {
  const { 'transfer-encoding': _, ...known } = Object.fromEntries(answer.headers)
  const headers = { ...known, 'content-length': String(bytes.length) }
  response.writeHead(answer.status, headers)
  if (isCut) response.write(bytes.subarray(0, bytes.length / 2))
  else response.end(bytes)
}

function askedFor({ url = '' }: IncomingMessage): Asked {
  if (url.endsWith('/deployments/report')) return 'report'
  if (url.endsWith('/v1/auth')) return 'auth'
  if (url.endsWith('/authorize')) return 'authorize'
  if (url.endsWith('/versions/latest')) return 'latest'
  if (url.includes('/install?') || url.includes('/downloads/')) return 'download'
  return url.includes('/artifacts/') ? 'artifact' : 'latest'
}
