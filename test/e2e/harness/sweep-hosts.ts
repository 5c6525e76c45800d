import { existsSync, lstatSync, readdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { rewriteCopiedJournal } from './copied-journal.ts'
import { copyBuild, copyHost, type HostCopy, type HostOrigin } from './host-copy.ts'
import { type Listing, listLive } from './invariants.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, SIGNING_SECRET, type Stage, writeFiles } from './stage.ts'

const PLUGIN_SECRET_KEY = 'the host framework signs with this'
const OLD_VERSIONS = ['0.7.0', '0.8.0', '0.9.0', '1.0.0']
const NEW_VERSION = '2.0.0'

const UPDATE_PLAN = `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template, depends_on: [files]}
`

/**
 * A host that runs 1.0.0 with three snapshots and its own files, and copies of that host. An update to 2.0.0 removes
 * the oldest snapshot, carries the host's files over and creates a settings file.
 */
export interface SweepHosts {
  readonly stage: Stage
  /** The texts that no file or log may contain. */
  readonly secrets: readonly string[]
  /** The live trees before the update. */
  readonly old: Listing
  /** A copy of a host, by default of the prepared host. The name is also the copy's host id. */
  copy(name: string, from?: SweepHost): SweepHost
  close(): Promise<void>
}

export interface SweepHost extends HostCopy {
  /** Updates the host to 2.0.0. */
  update(run?: Partial<ActionRun>): Promise<ActionResult>
  /** Starts an update that fails after the switch: the settings lack a variable that the plugin requires. */
  updateInVain(run?: Partial<ActionRun>): Promise<ActionResult>
}

export async function openSweepHosts(): Promise<SweepHosts> {
  const stage = await openStage()
  const repository = copyBuild(stage)
  await installOldVersions(stage, repository)
  await stage.publish(NEW_VERSION, newFiles())
  const inputs = { version: NEW_VERSION, 'plugin-secret-key': PLUGIN_SECRET_KEY }
  const origin = { stage, repository, root: stage.root, plan: UPDATE_PLAN, inputs }
  const secrets = [stage.apiKey, SIGNING_SECRET, PLUGIN_SECRET_KEY]
  return {
    stage,
    secrets,
    old: listLive(stage.root),
    copy: (name, from) => copySweepHost({ ...origin, root: from?.root ?? origin.root }, name, from),
    close: () => stage.close(),
  }
}

async function installOldVersions(stage: Stage, repository: string): Promise<void> {
  for (const version of OLD_VERSIONS) {
    await stage.publish(version, { ...pluginFiles(version), 'docs/guide.md': `Guide of ${version}\n` })
    const { exitCode, log } = await stage.deploy({ version }, { repository })
    if (exitCode !== 0) throw new Error(log)
  }
  writeFiles(join(stage.root, 'plugins/greeter'), { 'data/visitors': '17\n', '.env': 'LANGUAGE=en\n' })
  symlinkSync('visitors', join(stage.root, 'plugins/greeter/data/latest'))
  writeFiles(stage.root, { 'plugins/neighbour/plugin.yaml': 'name: neighbour\n' })
}

function newFiles(): Record<string, string> {
  const yaml = `name: greeter\nversion: "${NEW_VERSION}"\nexecution_mode: trusted\nenvironment:\n  required: [GREETER_TOKEN]\n`
  return pluginFiles(NEW_VERSION, {
    'plugin.yaml': yaml,
    '.env.template': 'GREETER_TOKEN=\n',
    'lib/greeting.py': 'GREETING = "hello"\n',
  })
}

function copySweepHost(origin: HostOrigin, name: string, from: HostCopy | undefined): SweepHost {
  const host = copyHost(origin, name)
  if (from !== undefined) moveJournal(from, host)
  return {
    ...host,
    update: (run = {}) => host.deploy({ settings: 'GREETER_TOKEN=of this host' }, run),
    updateInVain: (run = {}) => host.deploy({}, run),
  }
}

/**
 * Rewrites the journal in the copy of an interrupted host, so that it contains the copy's host id and the inodes of the
 * copied files.
 */
function moveJournal(from: HostCopy, to: HostCopy): void {
  const journal = join(to.root, '.hub-deploy', 'journal.jsonl')
  if (!existsSync(journal)) return
  const paths = new Map(
    readdirSync(from.root, { recursive: true, encoding: 'utf8' }).map(path => [inodeOf(join(from.root, path)), path]),
  )
  rewriteCopiedJournal(journal, ino => join(to.root, paths.get(ino) ?? 'gone'), to.name)
}

function inodeOf(path: string): string {
  return String(lstatSync(path).ino)
}
