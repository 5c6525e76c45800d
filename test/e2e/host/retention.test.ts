import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { after, before, describe, it } from 'node:test'
import fc from 'fast-check'
import { byExtent, whyLeftToCi } from '../../extent.ts'
import { copyBuild } from '../harness/prepared-host.ts'
import { onceInLog, signal } from '../harness/processes.ts'
import { openProjectStage, projectFiles } from '../harness/project-stage.ts'
import { type Random, randomFrom } from '../harness/random.ts'
import {
  openStage,
  PLUGIN_PLAN,
  pluginFiles,
  rollBack,
  SERVICE_PLAN,
  type Stage,
  writeFiles,
} from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

/**
 * With `DEPLOYMENTS=5000`, the test does 5,000 runs. After every 500 runs, it prints the duration of a run and the
 * number of files in each folder.
 */
const DEPLOYMENTS = Number(process.env['DEPLOYMENTS'] ?? byExtent({ sample: 8, ci: 40 }))
const KEEP = { 'keep-reports': '2', 'keep-snapshots': '1' }
/**
 * The most files and folders for two parts. A killed run may have left a staged version or a snapshot that it had not
 * yet pruned.
 */
const MOST: Record<string, number> = {
  '.': 15,
  reports: 2 * 2,
  outbox: 2, // for each part, one report on a dead run that a run of the other part recovered
  trees: 2 * (1 + 1) + 1,
  staging: 2 + 2 * 5,
  trash: 2 + 2 * 5,
  snapshots: 4 + 2 * 5 + 5,
  'installed.json, KiB': 8,
}

let stage: Stage
let repository: string
before(async () => {
  stage = await openStage()
  repository = copyBuild(stage)
  for (const version of ['1.0.0', '2.0.0', '3.0.0']) {
    await stage.publish(version, pluginFiles(version))
    await stage.publish(version, { 'run.sh': `echo ${version}\n` }, { kind: 'service', slug: 'clock' })
  }
})
after(() => stage.close())

/** Runs one deployment of the plugin or the service. Most succeed; some fail, are killed, or are refused. */
async function deployOnce(random: Random): Promise<void> {
  const isPlugin = random.below(2) === 0
  stage.writePlan(isPlugin ? PLUGIN_PLAN : SERVICE_PLAN)
  const inputs = { ...KEEP, slug: isPlugin ? 'greeter' : 'clock', kind: isPlugin ? 'plugin' : 'service' }
  const version = random.pick(['1.0.0', '2.0.0', '3.0.0', '9.9.9'])
  switch (random.below(8)) {
    case 0:
      return void (await stage.deploy({ ...inputs, version }, { repository, ...killed('installing') }))
    case 1:
      return void (await stage.deploy({ ...inputs, version: 'not a version' }, { repository }))
    default:
      return void (await stage.deploy({ ...inputs, version }, { repository }))
  }
}

const killed = (state: string) => onceInLog(state, pid => signal(pid, 'SIGKILL'))

/** The number of files and folders in each folder to which runs write, and the size of `installed.json`. */
function fill(): Record<string, number> {
  const own = join(stage.root, '.hub-deploy')
  const folders = ['.', 'reports', 'outbox', 'trees', 'staging', 'trash', 'snapshots']
  const counts = folders.map(folder => [folder, countBelow(join(own, folder), folder !== '.')] as const)
  return {
    ...Object.fromEntries(counts),
    'installed.json, KiB': Math.ceil(
      (statSync(join(own, 'installed.json'), { throwIfNoEntry: false })?.size ?? 0) / 1024,
    ),
  }
}

function countBelow(path: string, isDeep: boolean): number {
  const names = readdirSync(path)
  const deeper = isDeep ? names.filter(name => lstatSync(join(path, name)).isDirectory()) : []
  return names.length + deeper.reduce((sum, name) => sum + countBelow(join(path, name), true), 0)
}

describe('a host after many deployments', () => {
  it('contains no more of our files than those of its versions and of the reports that it keeps', {
    skip: ONLY_IN_CI,
  }, async t => {
    const seed = process.env['RETENTION_SEED'] ?? randomUUID()
    t.diagnostic(`RETENTION_SEED=${seed}`)
    const random = randomFrom(seed)
    const most: Record<string, number> = {}
    let began = performance.now()
    for (let run = 1; run <= DEPLOYMENTS; run++) {
      await deployOnce(random)
      if (run % 500 === 0) {
        t.diagnostic(`${run}: ${((performance.now() - began) / 500).toFixed(0)} ms a run, ${JSON.stringify(fill())}`)
        began = performance.now()
      }
      for (const [folder, count] of Object.entries(fill())) most[folder] = Math.max(most[folder] ?? 0, count)
    }
    const exceeded = Object.entries(most).filter(([folder, count]) => count > (MOST[folder] ?? 0))
    assert.deepEqual(exceeded, [])
  })
})

describe('keep-reports', () => {
  it('counts the reports of a project too', async t => {
    const project = await openProjectStage()
    t.after(() => project.close())
    await project.publish('1.0.0', projectFiles('1.0.0'))
    const paths: string[] = []
    for (let run = 1; run <= 3; run++) {
      const { outputs, log } = await project.deploy({ 'keep-reports': '2' })
      assert.equal(outputs['outcome'], 'success', log)
      paths.push(basename(outputs['report-path'] ?? ''))
    }
    assert.deepEqual(readdirSync(join(project.root, '.hub-deploy/reports')).toSorted(), paths.slice(1))
  })
})

/** Directories of the plugin, and a file that one version ships, in which the host writes. */
const WRITTEN = ['', 'data/', 'data/deep/', 'uploads/', 'src/', 'lib/'] as const
const EDITED = 'conf/app.conf'
const VERSIONS = { '1.0.0': { [EDITED]: 'shipped' }, '2.0.0': { 'uploads/default': 'shipped' }, '3.0.0': {} }
/** Right, misspelt and refused lists. */
const KEEP_PATHS = ['', 'data', 'dat', 'uploads\ndata/deep', 'src', 'conf, lib', '- data', 'data/*'] as const

const keepPaths = fc.constantFrom(...KEEP_PATHS)
const version = fc.constantFrom('1.0.0', '2.0.0', '3.0.0', '9.9.9')
const act = fc.oneof(
  { weight: 3, arbitrary: fc.record({ how: fc.constant('write' as const), to: fc.constantFrom(...WRITTEN, EDITED) }) },
  { weight: 3, arbitrary: fc.record({ how: fc.constant('deploy' as const), version, keepPaths }) },
  {
    weight: 1,
    arbitrary: fc.record({
      how: fc.constant('kill' as const),
      version,
      keepPaths,
      state: fc.constantFrom('installing', 'healthchecking'),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      how: fc.constant('rollback' as const),
      version: fc.option(version, { nil: '' }),
      keepPaths,
    }),
  },
)
type Act = typeof act extends fc.Arbitrary<infer Value> ? Value : never

describe('what the host wrote', () => {
  it('is still on the host after any sequence of deployments, rollbacks, failures and inputs', {
    skip: ONLY_IN_CI,
  }, async () => {
    const seed = process.env['RETENTION_SEED']
    const check = fc.asyncProperty(fc.array(act, { minLength: 8, maxLength: 16 }), async acts => {
      const host = await openStage()
      try {
        for (const [at, files] of Object.entries(VERSIONS)) await host.publish(at, pluginFiles(at, files))
        await host.deploy({ version: '1.0.0' })
        const written = new Set<string>()
        for (const [nth, next] of acts.entries()) {
          if (next.how === 'write') write(host, { to: next.to, text: `host-${nth}`, written })
          else await run(host, next)
          const found = new Set(textsBelow(host.root))
          for (const text of written) assert.ok(found.has(text), `${text} is gone after act ${nth}`)
        }
      } finally {
        await host.close()
      }
    })
    const numRuns = byExtent({ sample: 1, ci: 6, full: 200 })
    await fc.assert(check, { numRuns, ...(seed && { seed: Number(seed) }), endOnFailure: numRuns < 200 })
  })
})

async function run(host: Stage, next: Exclude<Act, { how: 'write' }>): Promise<void> {
  const given = { 'keep-paths': next.keepPaths, 'keep-snapshots': '1' }
  if (next.how === 'rollback') return void (await rollBack(host, { ...given, 'to-version': next.version }))
  const inputs = { ...given, version: next.version }
  await host.deploy(inputs, { repository, ...(next.how === 'kill' && killed(next.state)) })
}

/** Writes a new file, or edits one. The host itself then has overwritten its earlier text. */
function write({ root }: Stage, { to, text, written }: { to: string; text: string; written: Set<string> }): void {
  const place = join(root, 'plugins/greeter')
  // A killed run may have left nothing here.
  if (!existsSync(place)) return
  const path = to === EDITED ? to : `${to}${text}`
  if (existsSync(join(place, path))) written.delete(readFileSync(join(place, path), 'utf8'))
  writeFiles(place, { [path]: text })
  written.add(text)
}

function textsBelow(path: string): string[] {
  return readdirSync(path, { withFileTypes: true, recursive: true })
    .filter(entry => entry.isFile())
    .map(({ parentPath, name }) => readFileSync(join(parentPath, name), 'utf8'))
}
