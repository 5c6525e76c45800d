import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { TestContext } from 'node:test'
import { createKey, type KeyRequest } from '../../hub/access.ts'
import { zipFolder } from '../../hub/archive/make-zip.ts'
import { type Publication, publishArchive } from '../../hub/marketplace/publish.ts'
import { type HubOptions, startHub } from '../../hub/server.ts'
import { openStore, type Store } from '../../hub/store.ts'

export const ADMIN_TOKEN = 'admin-token-of-the-tests'
export const SIGNING_SECRET = 'signing-secret-of-the-tests'

export interface HubUnderTest {
  readonly url: string
  readonly dataDir: string
  readonly store: Store
  readonly log: string[]
  readonly newKey: (request?: Partial<KeyRequest>) => string
  readonly publish: (publication?: Partial<Publication>, files?: Record<string, string>) => Promise<void>
  readonly call: (path: string, options?: CallOptions) => Promise<Response>
}

interface CallOptions {
  readonly method?: string
  readonly key?: string
  readonly bearer?: string
  readonly headers?: Record<string, string>
  readonly json?: unknown
  readonly body?: string
}

/** Starts a hub on a free port with a new data folder. Stops the hub and removes the folder when the test ends. */
export async function runHub(t: TestContext, options: Partial<HubOptions> = {}): Promise<HubUnderTest> {
  const dataDir = join(newFolder(t), 'data')
  const log: string[] = []
  const hub = await startHub({ dataDir, adminToken: ADMIN_TOKEN, log: line => log.push(line), ...options })
  const store = openStore(dataDir)
  t.after(async () => {
    store.close()
    await hub.close()
  })
  return {
    url: hub.url,
    dataDir,
    store,
    log,
    newKey: (request = {}) => createKey(store, { name: 'test', ...request }).key,
    publish: async (publication = {}, files = { 'plugin.yaml': 'name: hello\n' }) => {
      const complete = { ...PUBLICATION, signingSecret: SIGNING_SECRET, ...publication }
      await publishArchive(store, zipFolder(newFolder(t, files)).bytes, complete)
    },
    call: (path, callOptions = {}) => fetch(hub.url + path, buildRequest(callOptions)),
  }
}

/** An object that cleans up when it ends, such as a test. */
export interface Ends {
  after(cleanUp: () => void): void
}

/** Creates a temporary folder with these files. The folder is removed when the test ends. */
export function newFolder(t: Ends, files: Record<string, string> = {}): string {
  const folder = mkdtempSync(join(tmpdir(), 'hub-test-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), content)
  }
  return folder
}

/**
 * The `error` of a JSON response. Throws if the response is not JSON, has a different sentence in `detail`, lacks
 * X-Content-Type-Options or contains a stack trace.
 */
export async function errorOf(response: Response): Promise<string> {
  const text = await response.text()
  if (!response.headers.get('content-type')?.startsWith('application/json')) throw new Error(`not JSON: ${text}`)
  if (response.headers.get('x-content-type-options') !== 'nosniff')
    throw new Error('the X-Content-Type-Options header is missing')
  if (/\n\s+at /.test(text)) throw new Error(`the response contains a stack trace: ${text}`)
  const { error, detail } = JSON.parse(text) as { error: string; detail: string }
  if (error !== detail) throw new Error(`error and detail differ: ${text}`)
  return error
}

const PUBLICATION = { kind: 'plugin', slug: 'hello', version: '1.0.0' } as const

function buildRequest({ method, key, bearer, headers, json, body }: CallOptions): RequestInit {
  const hasBody = json !== undefined || body !== undefined
  return {
    method: method ?? (hasBody ? 'POST' : 'GET'),
    headers: {
      ...(key === undefined ? {} : { 'X-API-Key': key }),
      ...(bearer === undefined ? {} : { Authorization: `Bearer ${bearer}` }),
      ...(hasBody ? { 'Content-Type': 'application/json' } : {}),
      ...headers,
    },
    ...(hasBody ? { body: body ?? JSON.stringify(json) } : {}),
  }
}
