import assert from 'node:assert/strict'
import { randomBytes, randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { after, before, describe, it, type TestContext } from 'node:test'
import {
  deploy,
  type Hosts,
  type MarketplaceTarget,
  makeCall,
  newTally,
  type ProjectTarget,
  runHosts,
  type Target,
} from '../../bench/load/hosts.ts'
import { serveHub } from '../../bench/load/served-hub.ts'
import { createKey } from '../../hub/access.ts'
import { publishArchive } from '../../hub/marketplace/publish.ts'
import { createProjectKey, type Purpose } from '../../hub/project/keys.ts'
import { publishProject } from '../../hub/project/publish.ts'
import { openStore, type Store } from '../../hub/store.ts'
import { byExtent, HANG_LIMIT_MS } from '../extent.ts'
import { sealShop } from './project/project-source.ts'
import { type Ended, hubProcess } from './run-cli.ts'
import { type Ends, newFolder, SIGNING_SECRET } from './running-hub.ts'

const ARTIFACT_BYTES = 1_000_000
const REPORTING: Hosts = { count: 40, deployments: byExtent({ sample: 2, ci: 10 }), downloads: false }
const DOWNLOADING: Hosts = { count: 10, deployments: byExtent({ sample: 2, ci: 10 }), downloads: true }
const DEPLOYMENTS = REPORTING.count * REPORTING.deployments + DOWNLOADING.count * DOWNLOADING.deployments
/** Each contract, and the commands that run at the same time. */
const CONTRACTS = [
  ['marketplace', [publishAnother, backUp]],
  ['project', byExtent({ sample: [], ci: [publishAnother, backUp] })],
] as const

for (const [contract, commands] of CONTRACTS)
  describe(`a hub that many hosts use at once under the ${contract} contract`, { timeout: HANG_LIMIT_MS }, () => {
    let served: Served
    before(async () => {
      served = await serve(contract)
    })
    after(async () => await served.close())

    it(`answers each call, and keeps each report once, while others use it`, async () => {
      const { target, store } = served
      const [tallies, ...others] = await Promise.all([
        Promise.all([REPORTING, DOWNLOADING].map(hosts => runHosts(target, hosts))),
        ...commands.map(command => command(served)),
      ])
      assert.deepEqual(
        tallies.flatMap(({ errors }) => errors),
        [],
      )
      for (const { code, stderr } of others) assert.equal(code, 0, stderr)
      assert.equal(idsOfReports(store, contract).length, DEPLOYMENTS)
    })

    it('makes a deployment fail when it sends the wrong bytes', async () => {
      const other = { ...served.target, sha256: '0'.repeat(64) }
      const deployment = { hostId: 'a', downloads: true }
      await assert.rejects(
        deploy(other, deployment, newTally()),
        /^Error: download: the hub served bytes with the sha256 [0-9a-f]{64}, not [0-9a-f]{64}$/,
      )
    })

    it('has every report that it accepted before it was killed', async () => {
      const { target, hub, store } = served
      const headers = await credentialsOf(target)
      const answered: string[] = []
      let isKilled: Promise<void> | undefined
      const reportOn = async () => {
        for (;;) {
          answered.push(await sendReport(target, headers))
          if (answered.length > 50) isKilled ??= hub.stop('SIGKILL')
        }
      }
      await Promise.allSettled(Array.from({ length: 20 }, reportOn))
      await isKilled
      const kept = new Set(idsOfReports(store, contract))
      assert.ok(answered.length > 50)
      assert.deepEqual(
        answered.filter(id => !kept.has(id)),
        [],
      )
    })
  })

describe('an expired row', () => {
  it('is found by its time, however many there are', t => {
    const store = newStore(t)
    for (const table of ['access_tokens', 'download_tickets']) {
      const plan = store.db.prepare(`EXPLAIN QUERY PLAN DELETE FROM ${table} WHERE expires_at_ms <= 0`).get()
      assert.match(String(plan?.['detail']), new RegExp(`INDEX ${table}_by_expiry`))
    }
  })
})

describe('writing for several requests at once', () => {
  it('undoes only the request that threw', async t => {
    const store = newStore(t)
    const write = (id: string) => store.db.prepare('INSERT INTO settings (name, value) VALUES (?, 1)').run(id)
    const failing = () => {
      write('half')
      throw new Error('refused')
    }
    const all = [() => write('a'), failing, () => write('b')]
    const settled = await Promise.allSettled(all.map(work => store.shared.run(work)))
    assert.deepEqual(
      settled.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    )
    const names = store.db.prepare('SELECT name FROM settings ORDER BY name').all()
    assert.deepEqual(
      names.map(({ name }) => name).filter(name => ['a', 'b', 'half'].includes(String(name))),
      ['a', 'b'],
    )
  })

  it('writes each of the others by itself when one has ended the shared transaction', async t => {
    const store = newStore(t)
    const write = (id: string) => store.db.prepare('INSERT INTO settings (name, value) VALUES (?, 1)').run(id)
    const ended = () => {
      // SQLite rolls back by itself when the disk is full.
      store.db.exec('ROLLBACK')
      throw new Error('the disk is full')
    }
    const all = [() => write('a'), ended, () => write('b')]
    const settled = await Promise.allSettled(all.map(work => store.shared.run(work)))
    assert.deepEqual(
      settled.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled'],
    )
    assert.equal(
      store.db.prepare("SELECT count(*) AS written FROM settings WHERE name IN ('a', 'b')").get()?.['written'],
      2,
    )
  })

  it('is on the disk before a request is answered', t => {
    assert.equal(newStore(t).db.prepare('PRAGMA synchronous').get()?.['synchronous'], 2)
  })
})

type Served = Awaited<ReturnType<typeof serve>>

/** Serves a plugin or a project that hosts can deploy, from a hub in its own process. */
async function serve(contract: Target['contract']) {
  const cleanUps: (() => void)[] = []
  const end: Ends = { after: cleanUp => cleanUps.push(cleanUp) }
  const dataDir = join(newFolder(end), 'data')
  const store = openStore(dataDir)
  const published = contract === 'marketplace' ? await publishPlugin(store) : await publishShop(store, end)
  const hub = await serveHub(dataDir)
  const close = async () => {
    await hub.stop()
    store.close()
    for (const cleanUp of cleanUps) cleanUp()
  }
  return { hub, end, dataDir, store, close, target: { ...published, hubUrl: hub.url } }
}

async function publishPlugin(store: Store): Promise<Omit<MarketplaceTarget, 'hubUrl'>> {
  const publication = { kind: 'plugin', slug: 'hello', version: '1.0.0', signingSecret: SIGNING_SECRET } as const
  const { sha256, version, slug } = await publishArchive(store, randomBytes(ARTIFACT_BYTES), publication)
  const { key } = createKey(store, { name: 'test' })
  return { contract: 'marketplace', slug, version, sha256, apiKey: key }
}

async function publishShop(store: Store, end: Ends): Promise<Omit<ProjectTarget, 'hubUrl'>> {
  const data = randomBytes(ARTIFACT_BYTES / 2).toString('hex')
  const { sha256, version } = await publishProject(store, await sealShop(end, {}, { 'plugins/cart/data': data }))
  const newKey = (purpose: Purpose) => createProjectKey(store, { project_id: 'shop', purpose, name: 'test' }).value
  const keys = { devkey: newKey('devkey'), credential: newKey('credential') }
  return { contract: 'project', projectId: 'shop', version, sha256, ...keys }
}

async function publishAnother({ dataDir, end }: Served): Promise<Ended> {
  const from = newFolder(end, { 'run.sh': 'true' })
  const options = ['--data', dataDir, '--kind', 'service', '--slug', 'other', '--version', '1.0.0', '--from', from]
  return await hubProcess('publish', ...options, '--signing-secret-env', 'HUB_TEST_SECRET')
}

async function backUp({ dataDir, end }: Served): Promise<Ended> {
  return await hubProcess('backup', '--data', dataDir, '--to', join(newFolder(end), 'backup.tar'))
}

/** The header with the credentials for a report. */
async function credentialsOf(target: Target): Promise<Record<string, string>> {
  if (target.contract === 'marketplace') return { 'X-API-Key': target.apiKey }
  const json = { xdevkey: target.devkey, project_id: target.projectId }
  const login = { name: 'login', url: `${target.hubUrl}/v1/auth`, method: 'POST', status: 200 } as const
  const { body } = await makeCall(newTally(), { ...login, json })
  return { Authorization: `Bearer ${JSON.parse(body).access_token}` }
}

/** Sends a report. Resolves to the report's id in the hub's answer. */
async function sendReport(target: Target, headers: Record<string, string>): Promise<string> {
  const now = new Date().toISOString()
  const report = { version: '1.0.0', status: 'success', started_at: now, completed_at: now }
  const [path, more, id] =
    target.contract === 'marketplace'
      ? ['/deployments/report', { kind: 'plugin', slug: 'hello', host_id: 'a' }, 'id']
      : ['/v1/deployments/report', { project_id: 'shop', deployment_id: randomUUID(), plugins: [] }, 'deployment_id']
  const call = { name: 'report', url: target.hubUrl + path, method: 'POST', status: 201 } as const
  const { body } = await makeCall(newTally(), { ...call, headers, json: { ...report, ...more } })
  return JSON.parse(body)[id]
}

function idsOfReports(store: Store, contract: Target['contract']): string[] {
  const [column, table] = contract === 'marketplace' ? ['id', 'reports'] : ['deployment_id', 'project_reports']
  return store.db
    .prepare(`SELECT ${column} AS id FROM ${table}`)
    .all()
    .map(({ id }) => String(id))
}

function newStore(t: TestContext): Store {
  const store = openStore(newFolder(t))
  t.after(() => store.close())
  return store
}
