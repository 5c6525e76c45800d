import { chmodSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { type ActionResult, type ActionRun, runAction } from '../../../local/runner.ts'
import { openProjectStage, PROJECT_ID, type ProjectStage, projectFiles } from './project-stage.ts'
import { type HostStage, openHostStage, openStage, planWith, type Stage, writeFiles } from './stage.ts'

interface RefusingHub {
  readonly url: string
  close(): Promise<void>
}

/** Opens a proxy to a real hub. The proxy refuses the reports of projects, and passes on everything else. */
async function openRefusingHub(hubUrl: string): Promise<RefusingHub> {
  const server = createServer(async (request, response) => {
    const { method = 'GET', url = '' } = request
    if (url === '/v1/deployments/report') {
      response.writeHead(403, { 'content-type': 'application/json' }).end('{"error":"this key may not report"}')
      return
    }
    const body = method === 'POST' ? await buffer(request) : null
    const answer = await fetch(`${hubUrl}${url}`, { method, headers: sentOn(request), body })
    response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  return {
    url: `http://127.0.0.1:${port}`,
    async close() {
      server.closeAllConnections()
      await new Promise(resolve => server.close(resolve))
    },
  }
}

function sentOn({ headers }: IncomingMessage): Record<string, string> {
  const names = ['authorization', 'content-type', 'accept']
  return Object.fromEntries(names.flatMap(name => (headers[name] === undefined ? [] : [[name, String(headers[name])]])))
}

/** One way in which a run can end, and the result of a run that ended in this way. */
export interface PlayedEnding {
  readonly name: string
  readonly result: ActionResult
  /** Texts that differ from machine to machine, and their replacements. */
  readonly places: Readonly<Record<string, string>>
}

const HOST = { 'host-id': 'app-1' }

/** Each of these functions plays some of the endings. */
export const SCENES = [playUpdates, playRefusals, playFailures, playReading, playProject] as const

/**
 * Plays the endings of these scenes, all by default, with the real hub, the real `dist/` and stand-ins for systemd.
 */
export async function playEndings(scenes: readonly (typeof SCENES)[number][] = SCENES): Promise<PlayedEnding[]> {
  return (await Promise.all(scenes.map(play => play()))).flat()
}

/** The plugin's files. Most are the same in every version, and a few change with each version. */
function releaseFiles(version: string, more: Record<string, string> = {}): Record<string, string> {
  const modules = Array.from({ length: 56 }, (_, index) => [
    `src/greeter/part_${String(index + 1).padStart(2, '0')}.py`,
    `VERSION = "${index < 3 ? version : '1'}"\n${'# A line of a module.\n'.repeat(20 + index)}`,
  ])
  return {
    'plugin.yaml': `name: greeter\nversion: "${version}"\nentry_point: src/main.py\n`,
    // The stand-in for systemd treats this text as the running version.
    'src/main.py': version,
    'templates/mail.html': '<p>Hello</p>\n',
    ...Object.fromEntries(modules),
    ...more,
  }
}

const OLD = releaseFiles('1.0.0', { 'src/legacy.py': '# old\n'.repeat(50) })
const NEW = releaseFiles('1.1.0', { 'src/templates.py': '# new\n'.repeat(120) })

const PLAN = planWith(
  'action: restart, plugin: greeter',
  'action: healthcheck, plugin: greeter, timeout: 6s',
  'action: notify, event: deployed, message: "greeter is new"',
)
  .replaceAll('s1', 'up')
  .replaceAll('s2', 'ok')
  .replaceAll('s3', 'tell')

interface GreeterHost {
  readonly stage: HostStage
  readonly server: Server
  readonly places: Record<string, string>
  deploy(inputs?: Record<string, string>, run?: Partial<ActionRun>): Promise<ActionResult>
  configure(more?: string): void
  close(): Promise<void>
}

/**
 * Opens a host with a supervisor and a health check. The check passes for the versions for which `isHealthy` returns
 * true: by default, all but 2.x.
 */
async function openGreeterHost(
  isHealthy: (version: string) => boolean = version => !version.startsWith('2'),
): Promise<GreeterHost> {
  const stage = await openHostStage()
  const server = createServer((_, response) => {
    const version = stage.standIns.running() ?? ''
    if (isHealthy(version)) response.end(`{"version":"${version}"}`)
    else response.writeHead(503).end('cannot open the database')
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as { port: number }
  const notify = stage.standIns.add('tell-team', '')
  const configure = (more = ''): void =>
    stage.writeHostConfig(`version: 1
supervisor: systemd
plugins:
  greeter: {healthcheck: {http: "http://127.0.0.1:${port}/health", interval: 1s}}
notify: {deployed: {command: [${notify}]}}
${more}`)
  configure()
  stage.writePlan(PLAN)
  await stage.publish('1.0.0', OLD)
  return {
    stage,
    server,
    configure,
    places: { [`:${port}`]: ':8799', ...placesOf(stage), [stage.standIns.bin]: '/usr/local/bin' },
    deploy: (inputs = {}, run = {}) => stage.deployHere({ ...HOST, ...inputs }, run),
    async close() {
      server.closeAllConnections()
      server.close()
      await stage.close()
    },
  }
}

function placesOf(stage: Stage | ProjectStage): Record<string, string> {
  return {
    ...hubPlaces(stage.hub.url),
    [stage.root]: '/srv/app',
    [stage.workspace.path]: '/runner/workspace',
    [stage.workspace.temp]: '/runner/temp',
    [stage.folder]: '/tmp/stage',
  }
}

/** Hubs that are not on loopback use https, so the example's hub does, too. */
function hubPlaces(url: string): Record<string, string> {
  return { [url]: 'https://hub.example.com', [new URL(url).host]: 'hub.example.com' }
}

async function playUpdates(): Promise<PlayedEnding[]> {
  const host = await openGreeterHost()
  const { stage, places } = host
  const ended: PlayedEnding[] = []
  const add = async (name: string, run: Promise<ActionResult>) => ended.push({ name, result: await run, places })
  try {
    await add('first-install', host.deploy())
    await stage.publish('1.1.0', NEW)
    await add('dry-run', host.deploy({ 'dry-run': 'true' }))
    await add('update', host.deploy())
    await add('no-change', host.deploy())
    const sha256 = ended.at(-1)?.result.outputs['artifact-sha256'] ?? ''
    await add('check-only', host.deploy({ 'check-only': 'true', version: '1.1.0', 'artifact-sha256': sha256 }))
    writeFiles(join(stage.root, 'plugins/greeter'), {
      'templates/mail.html': '<p>Hi</p>\n',
      'src/greeter/part_30.py': '',
    })
    await add(
      'status-drift',
      runAction({ action: 'status', workspace: stage.workspace, inputs: { 'project-root': stage.root } }),
    )
    await stage.publish('1.2.0', releaseFiles('1.2.0'))
    await add('update-with-drift', host.deploy())
    const rollback = { kind: 'plugin', id: 'greeter', 'project-root': stage.root, 'host-config': 'host-config.yaml' }
    await add(
      'rollback',
      runAction({
        action: 'rollback',
        workspace: stage.workspace,
        inputs: { ...rollback, ...HOST, 'to-version': '1.0.0' },
        env: { PATH: stage.standIns.path },
      }),
    )
    await add(
      'rollback-refused',
      runAction({
        action: 'rollback',
        workspace: stage.workspace,
        inputs: { ...rollback, ...HOST, 'to-version': '0.9.0' },
        env: { PATH: stage.standIns.path },
      }),
    )
    return ended
  } finally {
    await host.close()
  }
}

async function playFailures(): Promise<PlayedEnding[]> {
  let isOldHealthy = true
  const host = await openGreeterHost(version => version.startsWith('1') && isOldHealthy)
  const { stage, places } = host
  const ended: PlayedEnding[] = []
  const add = async (name: string, run: Promise<ActionResult>) => ended.push({ name, result: await run, places })
  const pidOfHolder = `$(grep -o '"pid": *[0-9]*' '${stage.root}/.hub-deploy/lock' | grep -o '[0-9]*$')`
  const hinder = (shell: string): void => {
    const command = stage.standIns.add('hinder', shell)
    host.configure(`provision: {greeter: {command: [${command}]}}\n`)
    stage.writePlan(
      planWith('action: provision, plugin: greeter', 'action: restart, plugin: greeter').replaceAll('s1', 'db'),
    )
  }
  try {
    await host.deploy()
    await stage.publish('2.0.0', releaseFiles('2.0.0'))
    await add('rolled-back', host.deploy())
    isOldHealthy = false
    await add('rolled-back-unhealthy', host.deploy())
    isOldHealthy = true
    hinder(`kill -INT ${pidOfHolder}; sleep 20`)
    await add('cancelled', host.deploy())
    hinder(`kill -KILL ${pidOfHolder}; sleep 0.2`)
    await host.deploy()
    hinder('true')
    stage.writePlan(PLAN)
    await add('recovered', host.deploy({ version: '1.0.0' }))
    hinder(`mv '${stage.root}/.hub-deploy/snapshots/plugins/greeter' '${stage.root}/gone'; exit 1`)
    await add('inconsistent', host.deploy())
    return ended
  } finally {
    await host.close()
  }
}

async function playRefusals(): Promise<PlayedEnding[]> {
  const stage = await openStage()
  const places = placesOf(stage)
  const ended: PlayedEnding[] = []
  const add = async (name: string, run: Promise<ActionResult>) => ended.push({ name, result: await run, places })
  try {
    await stage.publish('1.0.0', OLD)
    await stage.deploy(HOST)
    await stage.publish('1.1.0', NEW)
    await add('refused-signature', stage.deploy({ ...HOST, 'signing-secret': 'not the secret of the hub' }))
    await add('refused-inputs', stage.deploy({ ...HOST, 'api-key': '', slug: 'Greeter!' }))
    stage.writePlan(`format_version: "1"
project_id: greeter
version: "1"
steps:
  - {id: files, action: install_plugin, plugin: greeter, snapshots: true}
  - {id: up, action: reboot, depends_on: [files]}
  - {id: ok, action: healthcheck, plugin: greeter, timeout: soon}
`)
    await add('refused-plan', stage.deploy(HOST))
    stage.writePlan(planWith())
    chmodSync(stage.root, 0o777)
    await add('refused-host', stage.deploy(HOST))
    chmodSync(stage.root, 0o755)
    return ended
  } finally {
    await stage.close()
  }
}

async function playProject(): Promise<PlayedEnding[]> {
  const stage = await openProjectStage()
  const refusing = await openRefusingHub(stage.hub.url)
  const places = { ...placesOf(stage), ...hubPlaces(refusing.url), [stage.signerPublicKey]: 'KEY' }
  const ended: PlayedEnding[] = []
  const add = async (name: string, run: Promise<ActionResult>) => ended.push({ name, result: await run, places })
  try {
    await stage.publish('1.0.0', projectFiles('1.0.0'))
    await add('project-first-install', stage.deploy(HOST))
    await stage.publish('2.0.0', projectFiles('2.0.0'))
    await add('project-update', stage.deploy(HOST))
    await add('project-no-change', stage.deploy(HOST))
    await add('project-refused', stage.deploy({ ...HOST, 'deployment-credential': 'not-the-credential' }))
    await add(
      'project-rollback',
      runAction({
        action: 'rollback',
        workspace: stage.workspace,
        inputs: { 'project-id': PROJECT_ID, 'project-root': stage.root, ...HOST },
      }),
    )
    await stage.publish('3.0.0', projectFiles('3.0.0'))
    await add('project-unreported', stage.deploy({ ...HOST, 'hub-url': refusing.url }))
    return ended
  } finally {
    await refusing.close()
    await stage.close()
  }
}

async function playReading(): Promise<PlayedEnding[]> {
  const stage = await openStage()
  const folderOf = (host: number): string => join(stage.folder, `host-${host}`)
  const places = { ...placesOf(stage), [folderOf(3)]: '/srv/app' }
  const ended: PlayedEnding[] = []
  const add = async (name: string, run: Promise<ActionResult>) => ended.push({ name, result: await run, places })
  const { workspace, root, hub, apiKey } = stage
  const plan = { 'install-plan': 'install.yaml' }
  const fleet = { 'hub-url': hub.url, slug: 'greeter', 'api-key': apiKey }
  try {
    await stage.publish('1.0.0', OLD)
    await add('gate-passed', stage.verify(plan))
    await add('gate-failed', stage.verify({ ...plan, 'signing-secret': 'not the secret of the hub' }))
    await add('status-nothing', runAction({ action: 'status', workspace, inputs: { 'project-root': root } }))
    for (const [index, version] of ['1.1.0', '1.1.0', '1.0.0'].entries()) {
      if (index === 0) await stage.publish('1.1.0', NEW)
      const folder = folderOf(index + 1)
      mkdirSync(folder, { mode: 0o755 })
      await stage.deploy({ 'host-id': `app-${index + 1}`, 'project-root': folder, version })
    }
    const app3 = { 'host-id': 'app-3', 'project-root': folderOf(3) }
    rmSync(join(folderOf(3), 'plugins'), { recursive: true })
    writeFileSync(join(folderOf(3), 'plugins'), '')
    await stage.deploy(app3)
    await add('fleet', runAction({ action: 'fleet', workspace, inputs: fleet }))
    await add(
      'fleet-gate-failed',
      runAction({ action: 'fleet', workspace, inputs: { ...fleet, 'expect-version': '1.1.0' } }),
    )
    const both = { 'expect-version': '1.1.0', 'expect-hosts': 'app-1, app-2' }
    await add('fleet-gate-passed', runAction({ action: 'fleet', workspace, inputs: { ...fleet, ...both } }))
    return ended
  } finally {
    await stage.close()
  }
}

type Places = Readonly<Record<string, string>>

/** Replaces the paths and addresses of this machine with those of an example. */
export function placed(text: string, places: Places): string {
  const longestFirst = Object.entries(places).toSorted(([a], [b]) => b.length - a.length)
  return longestFirst
    .reduce((all, [from, to]) => all.replaceAll(from, to).replaceAll(encoded(from), encoded(to)), text)
    .replaceAll(hostname(), 'this-host')
}

/**
 * Replaces everything in a summary that differs from run to run: paths, addresses, ids, digests, times, sizes in bytes,
 * and numbers of attempts.
 */
export function normalizeSummary(markdown: string, places: Places): string {
  return normalize(placed(markdown, places))
}

/**
 * Replaces the same texts in a log, and writes each group as its full title and its lines, because the form of a group
 * depends on the machine's speed. A group that ends soon has its full title. A slow group has a bare title; its full
 * title is in a line after the group.
 */
export function normalizeLog(log: string, places: Places): string {
  return normalize(placed(withTitles(log), places))
}

/** The lines of a log that a reader sees before opening a group. The titles of groups begin with a triangle. */
export function foldLog(log: string): string[] {
  return withTitles(log)
    .split('\n')
    .filter(line => line !== '' && !line.startsWith('    '))
}

function withTitles(log: string): string {
  const unmasked = log.replace(/^::add-mask::.*\n/gm, '')
  const soon = unmasked.replace(
    /^::group::(.*)\n([\s\S]*?)^::endgroup::\n/gm,
    (_, title, lines) => `▸ ${title}\n${indent(lines)}`,
  )
  // After a slow group, a line repeats the group's title and adds the group's work.
  return soon.replace(/^▸ ([^:\n]+)\n((?: {4}.*\n)*)(\1(?:: .*)? \([\d.]+ .*\))\n/gm, '▸ $3\n$2')
}

function indent(lines: string): string {
  return lines.replace(/^(?=.)/gm, '    ')
}

function normalize(text: string): string {
  return text
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'ID')
    .replace(/\b[0-9a-f]{64}\b/g, 'DIGEST')
    .replace(/\b[0-9a-f]{8}…[0-9a-f]{4}\b/g, 'DIG…EST')
    .replace(/(?:\d{6}-)?\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d\.\d{3}Z/g, 'TIME')
    .replace(/\d{4}-\d\d-\d\d \d\d:\d\d UTC/g, 'TIME')
    .replace(/\b\d+ bytes\b/g, 'N bytes')
    .replace(/(?<!for )\b[\d.]+( |&nbsp;)(?:ms|s)\b/g, 'N$1s')
    .replace(/\(attempts?: \d+\)/g, '(attempts: N)')
}

/** A text as a summary escapes it. */
function encoded(text: string): string {
  return text.replaceAll('_', '&#95;').replaceAll('://', '&#58;//')
}
