import { hash } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { publishArchive } from '../../hub/marketplace/publish.ts'
import { startHub } from '../../hub/server.ts'
import { openStore, type Store } from '../../hub/store.ts'
import { verifyHmacSignature } from '../../src/core/trust/signature.ts'
import { NOW, type ReportGiven, report } from '../../test/hub/fleet-of.ts'

/** A picture. `name` is the name of its file, without the extension. */
export interface HubPicture {
  readonly name: string
  readonly png: Buffer
}

const VIEWS = [
  { name: 'hub', width: 1000, colorScheme: 'light' },
  { name: 'hub-dark', width: 1000, colorScheme: 'dark' },
  { name: 'hub-phone', width: 390, colorScheme: 'light' },
] as const

/** Takes pictures of the page of a real hub to which the hosts of a small fleet have reported. */
export async function hubPictures(browser: Browser): Promise<HubPicture[]> {
  const dataDir = mkdtempSync(join(tmpdir(), 'hub-pictures-'))
  const hub = await startHub({ dataDir, now: () => NOW })
  try {
    await fillHub(dataDir)
    const pictures: HubPicture[] = []
    for (const { name, width, colorScheme } of VIEWS) {
      const page = await browser.newPage({ viewport: { width, height: 100 }, colorScheme })
      await page.goto(hub.url)
      pictures.push({ name, png: await page.locator('body').screenshot() })
      await page.close()
    }
    return pictures
  } finally {
    await hub.close()
    rmSync(dataDir, { recursive: true })
  }
}

async function fillHub(dataDir: string): Promise<void> {
  const store = openStore(dataDir)
  try {
    await publish(store, 'greeter', ['1.0.0', '1.1.0'])
    for (const given of REPORTS) report(store, { slug: 'greeter', ...given })
  } finally {
    store.close()
  }
}

async function publish(store: Store, slug: string, versions: readonly string[]): Promise<void> {
  for (const version of versions) {
    const what = { kind: 'plugin', slug, version, name: 'Greeter', signingSecret: 'secret of a picture' } as const
    await publishArchive(store, Buffer.from(`${slug} ${version}`), what)
  }
  store.db.prepare('UPDATE versions SET published_at = ?').run(new Date(NOW - 4 * 3_600_000).toISOString())
}

const REPORTS: readonly ReportGiven[] = [
  ...['app-1', 'app-2', 'app-9', 'app-10'].map(host_id => ({ host_id, version: '1.0.0', hoursAgo: 75 })),
  ...['app-1', 'app-10'].map(host_id => ({ host_id, version: '1.1.0', hoursAgo: 3 })),
  {
    host_id: 'app-2',
    version: '1.1.0',
    hoursAgo: 0.09,
    status: 'rolled_back',
    error_message:
      'ok: greeter 1.1.0 was not healthy within 60 s: nothing listens on 127.0.0.1:8799 (ECONNREFUSED): did the service start?',
  },
  {
    host_id: 'app-9',
    version: '1.1.0',
    hoursAgo: 0.4,
    status: 'failed',
    error_message: mismatch(),
  },
]

/** Returns the error message for an artifact whose signature does not match. */
function mismatch(): string {
  const artifact = { fd: -1, size: 919, sha256: hash('sha256', 'greeter 1.1.0') }
  try {
    verifyHmacSignature(artifact, Buffer.alloc(32), `hmac_sha256:${'1'.repeat(64)}`)
  } catch (error) {
    return (error as Error).message
  }
  throw new Error('A wrong signature was accepted.')
}
