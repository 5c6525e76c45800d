import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { ConfigError, toDeployError } from '../../../src/core/errors.ts'
import { recoverHost } from '../../../src/install/recovery/recover-host.ts'
import { hostFor, refuse } from '../../../src/install/run/contract.ts'
import { deployArtifact } from '../../../src/marketplace/deploy.ts'
import { type DeployRequest, MARKETPLACE } from '../../../src/marketplace/deployment.ts'
import { listTree } from '../../folders.ts'
import { rewriteCopiedJournal } from '../../install/journal/journal-text.ts'
import { toolsOf } from '../../install/prepared-deployment.ts'
import { collectLog } from '../../install/prepared-host.ts'
import { deployRequest } from '../../marketplace/deploy-request.ts'
import { createTestedWire } from '../../net/tested-wire.ts'
import { FILE_DAMAGES, FOLDER_DAMAGES, repairFolder, type Target } from './damages.ts'
import { randomFrom } from './random.ts'
import { openStage, pluginFiles, SERVICE_PLAN, SIGNING_SECRET, type Stage, writeFiles } from './stage.ts'

const UPDATE_PLAN = `format_version: "1"
project_id: greeter
version: "2"
steps:
  - {id: files, action: install_plugin, plugin: greeter, snapshot: true}
  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
`
const NEIGHBOUR_PLAN = UPDATE_PLAN.replaceAll('greeter', 'neighbour').replace(/ {2}- \{id: env.*\n/, '')
const NEW_VERSION = '2.0.0'

/** The host's own files. Each text occurs in no other file. */
const PRECIOUS = {
  'plugins/greeter/data/visitors': 'the visitors of this host\n',
  'plugins/greeter/.env': 'LANGUAGE=the language of this host\n',
}
const RETAINED = ['0.8.0', '0.9.0', '1.0.0'].map(mainOf)
const PRECIOUS_OF_DAMAGE = 'precious of the operator'

/** Hosts on which an update was killed: one host for each call of the update that changes names. */
export interface DamagedHosts {
  readonly images: readonly HostImage[]
  /**
   * Damages a host as the seed decides, and lets two runs work on it. If the second run does not succeed, repairs the
   * host as that run advises, and requires that a third run succeeds. Returns the outcomes of the first two. The runs
   * are function calls, or processes that start as the runner starts them.
   */
  check(seed: string, by?: 'calls' | 'processes'): Promise<string>
  close(): Promise<void>
}

export async function openDamagedHosts(): Promise<DamagedHosts> {
  const fast = makeFastFolder('damaged')
  process.env['TMPDIR'] = fast
  const stage = await openStage()
  const old = await prepareHost(stage)
  const images = await takeAllImages(stage, fast)
  const scene = { stage, old, new: images.new, images: withSwitches(images.all, [old, images.new]) }
  let count = 0
  return {
    images: images.all,
    async check(seed, by = 'calls') {
      const folder = join(fast, `case-${count++}`)
      const summary = await checkCase({ ...scene, folder, run: by === 'calls' ? callOn : startOn }, seed)
      rmSync(folder, { recursive: true })
      return summary
    },
    async close() {
      await stage.close()
      rmSync(fast, { recursive: true, force: true })
    },
  }
}

/**
 * Inserts, after each image, an image of a host on which neither version is complete, so that such images are chosen
 * more often.
 */
function withSwitches(images: readonly HostImage[], whole: readonly Live[]): HostImage[] {
  const between = images.filter(({ path }) => !whole.some(live => isSame(listGreeter(path), live)))
  assert.ok(
    between.length > 4,
    `expected more than 4 images of a host with neither version complete, found ${between.length}`,
  )
  return images.flatMap((image, index) => [image, between[index % between.length] ?? image])
}

/**
 * Prepares a host on which four versions of greeter were deployed, with the host's own files, and with files that no
 * deployment of greeter may touch.
 */
async function prepareHost(stage: Stage): Promise<Live> {
  const { root, workspace } = stage
  stage.writePlan(UPDATE_PLAN.replace(/ {2}- \{id: env.*\n/, ''))
  writeFiles(workspace.path, { 'neighbour.yaml': NEIGHBOUR_PLAN, 'clock.yaml': SERVICE_PLAN })
  for (const version of ['0.7.0', '0.8.0', '0.9.0', '1.0.0']) {
    await stage.publish(version, pluginFiles(version))
    await mustSucceed(stage, { version })
  }
  for (const version of ['1.0.0', '1.1.0']) {
    const files = { ...pluginFiles(version), 'plugin.yaml': `name: neighbour\nversion: "${version}"\n` }
    await stage.publish(version, { ...files, 'main.py': `neighbour ${version}` }, { slug: 'neighbour' })
    await mustSucceed(stage, { slug: 'neighbour', version, 'install-plan': 'neighbour.yaml' })
  }
  await stage.publish('1.0.0', { 'run.sh': 'tick' }, { kind: 'service', slug: 'clock' })
  await mustSucceed(stage, { slug: 'clock', kind: 'service', 'install-plan': 'clock.yaml' })
  writeFiles(root, { ...PRECIOUS, 'plugins/foreign/main.py': 'foreign', 'plugins/neighbour.env': 'A=1\n' })
  writeFiles(root, { 'plugins/neighbour/data/rows': 'rows of the neighbour' })
  const template = { '.env.template': 'COLOUR=blue\nTOKEN=\n' }
  const yaml = `name: greeter\nversion: "${NEW_VERSION}"\nenvironment: {required: [TOKEN]}\n`
  await stage.publish(NEW_VERSION, { ...pluginFiles(NEW_VERSION, template), 'plugin.yaml': yaml })
  stage.writePlan(UPDATE_PLAN)
  return listGreeter(root)
}

async function mustSucceed(stage: Stage, inputs: Record<string, string>): Promise<void> {
  const { exitCode, log } = await stage.deploy(inputs)
  assert.equal(exitCode, 0, log)
}

/** Takes the images of an update that fails and rolls back, and then of one that succeeds. */
async function takeAllImages(stage: Stage, folder: string) {
  const { root } = stage
  const take = (name: string, inputs: Record<string, string>) =>
    takeImages({ root, folder: join(folder, name) }, run => stage.deploy({ version: NEW_VERSION, ...inputs }, run))
  const inVain = await take('in-vain', { 'deployments-url': 'http://127.0.0.1:9' })
  assert.equal(inVain.result.outputs['outcome'], 'rolled_back', inVain.result.log)
  const update = await take('update', { settings: 'TOKEN=of this host' })
  assert.equal(update.result.outputs['outcome'], 'success', update.result.log)
  return { all: [...inVain.images, ...update.images], new: listGreeter(root) }
}

/** The files of greeter that the host runs, by path below `plugins/`. */
type Live = Readonly<Record<string, string>>

interface Case {
  readonly stage: Stage
  readonly images: readonly HostImage[]
  readonly folder: string
  readonly old: Live
  readonly new: Live
  readonly run: (host: Host, act: RunEnd['act']) => Promise<RunEnd>
}

async function checkCase(scene: Case, seed: string): Promise<string> {
  const random = randomFrom(seed)
  const image = random.pick(scene.images)
  const [root, outside] = [join(scene.folder, 'host'), join(scene.folder, 'outside')]
  mkdirSync(outside, { recursive: true })
  writeFileSync(join(outside, 'file'), 'outside the host')
  copyImage(image, root)
  const { kind, path } = random.pick(weighted(targetsIn(root)))
  const damages = kind === 'file' ? FILE_DAMAGES : FOLDER_DAMAGES
  const name = random.pick(Object.keys(damages))
  const target = { path: join(root, path), outside }
  const what = `${path} ${name}, killed at ${image.call}`
  damages[name]?.(target, random)
  const host = { ...scene, root, outside }
  const before = evidenceOf(host)
  const runs: RunEnd[] = []
  try {
    for (const act of [random.pick(['deploy', 'post', 'refuse', 'deploy'] as const), 'deploy'] as const) {
      runs.push(await scene.run(host, act))
      assertKept(host, before)
      assertTruth(host, runs.at(-1) as RunEnd, path)
    }
    await assertRepairable(host, { kind, ...target, before, end: runs.at(-1) as RunEnd })
  } catch (error) {
    const story = runs.map(({ act, outcome, message, log }) => [`${act}: ${outcome}: ${message}`, ...log].join('\n  '))
    throw new Error(`seed ${seed}: ${what}\n${story.join('\n')}`, { cause: error })
  }
  return runs.map(({ outcome }) => outcome).join(', ')
}

interface Host extends Case {
  readonly root: string
  readonly outside: string
}

interface FoundTarget {
  readonly kind: 'file' | 'folder'
  readonly path: string
}

/**
 * The state files and folders of a host, by path below the host's root. Leaves out the contents of `staging`,
 * `trash` and `snapshots`, except for the folders that contain the snapshots.
 */
function targetsIn(root: string): FoundTarget[] {
  const own = join(root, '.hub-deploy')
  const files = readdirSync(own, { recursive: true, encoding: 'utf8' })
    .filter(path => !/^(staging|trash|snapshots)\//.test(path) && lstatSync(join(own, path)).isFile())
    .sort()
  const folders = [
    'staging',
    'trash',
    'snapshots',
    'snapshots/plugins',
    'snapshots/plugins/greeter',
    'trees',
    'reports',
    'outbox',
  ]
  return [
    ...files.map(path => ({ kind: 'file' as const, path: `.hub-deploy/${path}` })),
    ...folders.map(path => ({ kind: 'folder' as const, path: `.hub-deploy/${path}` })),
  ]
}

/** Repeats the two files that matter most to a run, so that they are chosen more often. */
function weighted(targets: readonly FoundTarget[]): FoundTarget[] {
  return targets.flatMap(target => {
    if (target.path.endsWith('/journal.jsonl')) return Array.from({ length: targets.length }, () => target)
    return target.path.endsWith('/installed.json') ? Array.from({ length: 10 }, () => target) : [target]
  })
}

interface RunEnd {
  readonly act: 'deploy' | 'post' | 'refuse'
  readonly outcome: string
  readonly message: string
  readonly log: readonly string[]
}

async function startOn({ stage, root }: Host, act: RunEnd['act']): Promise<RunEnd> {
  const version = act === 'refuse' ? '../none' : NEW_VERSION
  const inputs = { 'project-root': root, version, settings: 'TOKEN=of this host', 'lock-timeout-seconds': '0' }
  const { outputs, log, exitCode } = await stage.deploy(
    inputs,
    act === 'post' ? { phase: 'post', state: { 'deployment-id': randomUUID() } } : {},
  )
  const outcome = act === 'post' ? `post ${exitCode}` : (outputs['outcome'] ?? 'none')
  return { act, outcome, message: log, log: log.split('\n') }
}

async function callOn({ stage, root }: Host, act: RunEnd['act']): Promise<RunEnd> {
  const log = collectLog()
  const wire = createTestedWire()
  const tools = toolsOf({ log, wires: { wire, reportWire: wire }, deploymentId: randomUUID() })
  const request = requestOf(stage, root)
  try {
    if (act === 'post') {
      const sender = MARKETPLACE.sender(request, tools)
      const host = hostFor({ ...request, sender }, MARKETPLACE.named(request), tools)
      const closed = host && (await recoverHost(host, request.lockTimeoutMs))
      return { act, outcome: closed?.report.outcome ?? 'nothing', message: '', log: log.lines }
    }
    const ended =
      act === 'deploy'
        ? await deployArtifact(request, tools)
        : await refuse(MARKETPLACE, request, { error: new ConfigError('invalid_input', 'version is none.'), tools })
    return { act, outcome: ended.report.outcome, message: ended.report.error?.message ?? '', log: log.lines }
  } catch (error) {
    return { act, outcome: 'thrown', message: toDeployError(error).message, log: log.lines }
  }
}

function requestOf({ hub, apiKey, workspace }: Stage, root: string): DeployRequest {
  return deployRequest({
    hub: hub.url,
    version: NEW_VERSION,
    apiKey,
    signingSecret: SIGNING_SECRET,
    plan: { path: join(workspace.path, 'install.yaml'), text: UPDATE_PLAN },
    projectRoot: root,
    keepPaths: ['.env', 'data'],
    settings: new Map([['TOKEN', 'of this host']]),
  })
}

interface Evidence {
  /** The files that no deployment of greeter may touch. */
  readonly others: Readonly<Record<string, string>>
  /** Texts that some file must contain. */
  readonly precious: readonly string[]
}

const OTHERS =
  /^(outside|host\/(plugins\/(neighbour|foreign)|extensions|\.hub-deploy\/snapshots\/(plugins\/neighbour|extensions)))/

function evidenceOf({ folder }: Case): Evidence {
  const all = listTree(folder)
  const others = Object.fromEntries(Object.entries(all).filter(([path]) => OTHERS.test(path)))
  const texts = contentsOf(all)
  const wanted = [...Object.values(PRECIOUS), ...RETAINED, PRECIOUS_OF_DAMAGE]
  return { others, precious: wanted.filter(text => texts.has(text)) }
}

function contentsOf(listing: Readonly<Record<string, string>>): Set<string> {
  return new Set(Object.values(listing).map(described => described.slice(described.indexOf(' ') + 1)))
}

/**
 * Asserts that no precious text is lost, and that `others`, the files that no deployment of greeter may touch, are
 * unchanged.
 */
function assertKept(host: Host, before: Evidence): void {
  const after = listTree(host.folder)
  const texts = contentsOf(after)
  assert.deepEqual(
    before.precious.filter(text => !texts.has(text)),
    [],
    'precious texts must not be lost',
  )
  assert.deepEqual(
    Object.fromEntries(Object.entries(after).filter(([path]) => OTHERS.test(path))),
    before.others,
    'files that do not belong to greeter must not change',
  )
}

/**
 * Asserts that a deployment that reports success has left the new version. If the host runs neither version, asserts
 * that the run reports neither success nor a rollback, and names the damage.
 */
function assertTruth(host: Host, { act, outcome, message, log }: RunEnd, damaged: string): void {
  const live = versionOf(host)
  if (act === 'deploy' && outcome === 'success') assert.equal(live, 'new')
  else if (live === 'neither') {
    assert.ok(
      outcome !== 'success' && outcome !== 'rolled_back',
      `the host runs neither version, but the run reports ${outcome}`,
    )
    assert.ok(
      [message, ...log].some(line => line.includes(damaged)),
      `the message or the log must name ${damaged}`,
    )
  }
}

function versionOf(host: Host): 'old' | 'new' | 'neither' {
  const live = listGreeter(host.root)
  for (const version of ['old', 'new'] as const) if (isSame(live, host[version])) return version
  return 'neither'
}

function isSame(a: Live, b: Live): boolean {
  const paths = Object.keys(a)
  return paths.length === Object.keys(b).length && paths.every(path => a[path] === b[path])
}

function listGreeter(root: string): Live {
  const shelf = existsSync(join(root, 'plugins')) ? listTree(join(root, 'plugins')) : {}
  return Object.fromEntries(Object.entries(shelf).filter(([path]) => /^greeter(\.env)?(\/|$)/.test(path)))
}

interface Damaged extends FoundTarget, Target {
  readonly before: Evidence
  readonly end: RunEnd
}

/**
 * Asserts that the last run either succeeded, or named the damaged file or folder and the remedy. In the second case,
 * applies the remedy, and asserts that the next run succeeds.
 */
async function assertRepairable(host: Host, { kind, path, outside, before, end }: Damaged): Promise<void> {
  if (end.outcome === 'success') return
  assert.ok(
    end.message.includes(relative(host.root, path)),
    `the message must name ${relative(host.root, path)}: ${end.message}`,
  )
  assert.match(end.message, /move|remove|restore|unmount/i, `the message must say what to do: ${end.message}`)
  if (kind === 'folder') repairFolder({ path, outside })
  else renameSync(path, join(host.folder, 'repaired'))
  const repaired = kind === 'folder' ? { ...before, others: evidenceOf(host).others } : before
  const next = await host.run(host, 'deploy')
  assert.equal(
    next.outcome,
    'success',
    `the run after the repair must succeed: ${next.message}\n${next.log.join('\n')}`,
  )
  assertKept(host, repaired)
}

function mainOf(version: string): string {
  return pluginFiles(version)['src/main.py'] ?? ''
}

const PRELOADED = join(import.meta.dirname, 'copy-at-calls.mjs')

/** A copy of the host that a run leaves if the run is killed at one particular call. */
interface HostImage {
  readonly path: string
  /** The call before which the copy was made. */
  readonly call: string
  /** The path of each inode at that moment. */
  readonly inodes: Readonly<Record<string, string>>
}

/** Runs an action without killing it, and takes an image of the host before each of its calls that change names. */
async function takeImages(
  { root, folder }: { readonly root: string; readonly folder: string },
  run: (run: Partial<ActionRun>) => Promise<ActionResult>,
): Promise<{ images: readonly HostImage[]; result: ActionResult }> {
  mkdirSync(folder)
  const result = await run({ env: { ROOT: root, IMAGES: folder, NODE_OPTIONS: `--import=${PRELOADED}` } })
  const names = readdirSync(folder).filter(name => name.endsWith('.json'))
  const images = names.map(name => ({
    path: join(folder, name.slice(0, -'.json'.length)),
    ...JSON.parse(readFileSync(join(folder, name), 'utf8')),
  }))
  return { images, result }
}

/** Creates a host from an image. The host's journal contains the inodes and times of the copied files. */
function copyImage(image: HostImage, root: string): void {
  copyTree(image.path, root)
  const journal = join(root, '.hub-deploy/journal.jsonl')
  if (!existsSync(journal)) return
  rewriteCopiedJournal(journal, ino => join(root, image.inodes[ino] ?? 'gone'))
}

/** Copies a tree without starting a process. Modes, symlinks and hard links are kept; times are not. */
function copyTree(from: string, to: string, copied = new Map<number, string>()): void {
  const stat = lstatSync(from)
  const known = stat.isFile() && stat.nlink > 1 ? copied.get(stat.ino) : undefined
  if (stat.isSymbolicLink()) symlinkSync(readlinkSync(from), to)
  else if (stat.isDirectory()) {
    mkdirSync(to)
    for (const name of readdirSync(from)) copyTree(join(from, name), join(to, name), copied)
    chmodSync(to, stat.mode)
  } else if (known !== undefined) linkSync(known, to)
  else copyFileSync(from, to)
  copied.set(stat.ino, to)
}

/** Creates a folder, on a file system in memory if this machine has one. The folder's path can serve as `TMPDIR`. */
function makeFastFolder(name: string): string {
  const memory = '/dev/shm'
  return mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), `${name}-`))
}
