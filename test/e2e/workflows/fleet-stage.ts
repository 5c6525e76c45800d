import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { createKey } from '../../../hub/access.ts'
import type { LocalStage } from '../../../local/stage.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, SIGNING_SECRET, type Stage, writeFiles } from '../harness/stage.ts'
import { runWorkflow, type WorkflowResult, type WorkflowRun } from './engine.ts'

const CHECKOUT = resolve(import.meta.dirname, '../../..')

/** The reference by which the workflows call this repository. */
const REFERENCE = 'OWNER/hub-deploy@v1'

/** The parts of this checkout that a runner downloads with an action, and the workflows that other workflows call. */
const PARTS = [
  'action.yml',
  'dist',
  'fleet',
  'project',
  'rollback',
  'status',
  'verify',
  '.github/workflows/rollout.yml',
]

/** The hosts. Each is a project root with its own runner, whose label is the host's name. */
export const HOSTS = ['app-1', 'app-2'] as const
export type HostName = (typeof HOSTS)[number]

/** The labels of runners for jobs that touch no host. */
const OTHERS = ['ubuntu-latest', 'release']

interface HostRow {
  host_id: string
  version: string
  status: string
}

/** A hub, two hosts, and an operator's repository with workflows, a plan and each host's config. */
export interface FleetStage extends Omit<Stage, 'root' | 'workspace' | 'writePlan'> {
  /** The operator's repository. */
  readonly repository: string
  /** Writes a file in the repository. */
  write(path: string, text: string): void
  /** Publishes a version of the plugin `greeter`. A `broken` version fails the hosts' health check. */
  release(version: string, state?: 'healthy' | 'broken'): Promise<void>
  /** Installs a version on every host, without a workflow. */
  install(version: string): Promise<void>
  /** Makes a host check the health of its installed version with this shell command, or at this URL. */
  checkHealth(host: HostName, check: string | URL): void
  /** Executes a workflow, with this hub and these hosts in place of the ones that the examples name. */
  run(workflow: string, run?: Partial<WorkflowRun>): Promise<WorkflowResult>
  rootOf(host: HostName): string
  /** The version of each host according to the host's own record; undefined for a host without a record. */
  versions(): (string | undefined)[]
  /** Throws if the log of a run contains a secret of this stage. */
  assertNoSecret(result: WorkflowResult): void
  /** The digests of a host's files, including records and reports. */
  files(host: HostName): Record<string, string>
  /** The digests of only the installed files. */
  installedFiles(host: HostName): Record<string, string>
  /** The hub's last report of each host, for example `app-1 1.0.0 success`. */
  hosts(): Promise<string[]>
}

const PLAN_WITH_CHECK = `${PLUGIN_PLAN}  - {id: ok, action: healthcheck, plugin: greeter, timeout: 4, depends_on: [files]}\n`

export async function openFleetStage(): Promise<FleetStage> {
  const stage = await openStage()
  const listing = { kind: 'plugin', slug: 'greeter' } as const
  const publishKey = createKey(stage.store, { name: 'release', ...listing, can_publish: true }).key
  const rootOf = (host: string): string => rootOn(stage, host)
  const write = (path: string, text: string): void => writeFiles(repositoryOf(stage), { [path]: text })
  const checkHealth: FleetStage['checkHealth'] = (host, check) => {
    const healthcheck = check instanceof URL ? { http: check.href } : { command: ['/bin/sh', '-c', check] }
    write(`deploy/hosts/${host}.yaml`, JSON.stringify({ version: 1, plugins: { greeter: { healthcheck } } }))
  }
  for (const host of HOSTS) checkHealth(host, `test ! -e ${rootOf(host)}/plugins/greeter/broken`)
  write('deploy/install.yaml', PLAN_WITH_CHECK)
  return {
    ...stage,
    repository: repositoryOf(stage),
    write,
    checkHealth,
    rootOf,
    release: (version, state = 'healthy') => stage.publish(version, pluginFiles(version, { [state]: '' })),
    async install(version) {
      for (const host of HOSTS) {
        mkdirSync(rootOf(host), { recursive: true })
        const { exitCode, log } = await stage.deploy({ version, 'project-root': rootOf(host), 'host-id': host })
        assert.equal(exitCode, 0, log)
      }
    },
    run: (workflow, run = {}) =>
      runOn(stage, workflow, {
        secrets: { HUB_API_KEY: stage.apiKey, GREETER_PUBLISH_KEY: publishKey, GREETER_SIGNING_SECRET: SIGNING_SECRET },
        ...run,
      }),
    versions: () => HOSTS.map(host => installedIn(rootOf(host))),
    assertNoSecret: result => assertNoneIn(result, [stage.apiKey, publishKey, SIGNING_SECRET]),
    files: host => readFiles(rootOf(host)),
    installedFiles: host => readFiles(join(rootOf(host), 'plugins')),
    async hosts() {
      const url = `${stage.hub.url}/deployments/plugin/greeter/hosts`
      const rows = (await (await fetch(url, { headers: { 'X-API-Key': stage.apiKey } })).json()) as HostRow[]
      return rows.map(({ host_id, version, status }) => `${host_id} ${version} ${status}`).sort()
    },
  }
}

/**
 * Executes a workflow with a stage's hub in place of the one that the examples name. Each host gets its own project
 * root, because all hosts are on one machine here. Unless the workflow has `max-parallel`, the jobs of a matrix run one
 * after another, because the engine looks up actions in a map that it does not lock.
 */
export async function runOn(
  stage: Pick<LocalStage, 'folder' | 'hub'>,
  workflow: string,
  run: Partial<WorkflowRun> & Pick<WorkflowRun, 'secrets'>,
): Promise<WorkflowResult> {
  const path = '.github/workflows/run.yml'
  const adapted = workflow
    .replaceAll('https://hub.example.com', stage.hub.url)
    .replaceAll('/srv/app', rootOn(stage, hostIn(workflow)))
    .replaceAll('/opt/hub-deploy', CHECKOUT)
    .replaceAll(/, "?app-3"?/g, '')
    .replace('canary: app-1', 'canary: app-1\n      soak-seconds: 0')
    .replace(/^( +)(matrix:)$/m, workflow.includes('max-parallel') ? '$1$2' : '$1max-parallel: 1\n$1$2')
  writeFiles(repositoryOf(stage), { [path]: adapted })
  for (const host of HOSTS) mkdirSync(rootOn(stage, host), { recursive: true })
  return await runWorkflow({
    repository: repositoryOf(stage),
    workflow: path,
    event: 'workflow_dispatch',
    runners: [...HOSTS, ...OTHERS],
    references: { [REFERENCE]: copyActions(stage) },
    folder: mkdtempSync(join(stage.folder, 'engine-')),
    ...run,
  })
}

/** Throws if the output of a run contains one of these secrets. The engine does not mask secrets here. */
export function assertNoneIn({ written }: WorkflowResult, secrets: readonly string[]): void {
  for (const secret of secrets) assert.ok(!written.includes(secret), written)
}

/** Copies the parts of this repository that a runner downloads, because a build in the meantime would change them. */
function copyActions({ folder }: Pick<LocalStage, 'folder'>): string {
  const copy = join(folder, 'actions')
  for (const part of PARTS.filter(name => existsSync(join(CHECKOUT, name)))) {
    mkdirSync(dirname(join(copy, part)), { recursive: true })
    cpSync(join(CHECKOUT, part), join(copy, part), { recursive: true })
  }
  return copy
}

/** The operator's repository. */
function repositoryOf({ folder }: Pick<LocalStage, 'folder'>): string {
  return join(folder, 'operations')
}

function rootOn({ folder }: Pick<LocalStage, 'folder'>, host: string): string {
  return join(folder, 'hosts', host)
}

function hostIn(workflow: string): string {
  if (workflow.includes('rollout.yml@')) return '{0}'
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an expression of the workflow
  return workflow.includes('matrix.host') ? '${{ matrix.host }}' : HOSTS[0]
}

function installedIn(root: string): string | undefined {
  const path = join(root, '.hub-deploy/installed.json')
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).installed[0]?.version : undefined
}

function readFiles(root: string): Record<string, string> {
  const entries = readdirSync(root, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  const paths = entries.map(entry => join(entry.parentPath, entry.name)).sort()
  return Object.fromEntries(paths.map(path => [path.slice(root.length + 1), digest(readFileSync(path))]))
}

function digest(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}
