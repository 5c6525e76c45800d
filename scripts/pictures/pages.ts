import { hash } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { marked } from 'marked'
import type { Browser } from 'playwright-core'
import { publishArchive } from '../../hub/marketplace/publish.ts'
import { startHub } from '../../hub/server.ts'
import { openStore, type Store } from '../../hub/store.ts'
import { verifyHmacSignature } from '../../src/core/trust/signature.ts'
import { NOW, type ReportGiven, report } from '../../test/hub/stored-reports.ts'

/** Returns a page that shows a job summary as the code host does. */
export function summaryPage(markdown: string): string {
  const html = marked.parse(markdown, { async: false, gfm: true })
  return page(SUMMARY_STYLE, `<article>${withAlerts(html)}</article>`)
}

/**
 * Returns a page that shows a log with folded groups, one row for each line. A row that begins with a triangle is the
 * title of a group.
 */
export function logPage(lines: readonly string[]): string {
  const rows = lines.map(line => `<div class="${classOf(line)}">${escaped(line)}</div>`)
  return page(LOG_STYLE, rows.join('\n'))
}

const ALERTS = { NOTE: 'Note', WARNING: 'Warning', CAUTION: 'Caution' } as const

/** Adds the class and the title of each highlighted block, which the library shows as a plain quotation. */
function withAlerts(html: string): string {
  return html.replace(
    /<blockquote>\n<p>\[!(NOTE|WARNING|CAUTION)\](?:<\/p>\n|\n)/g,
    (match, kind: keyof typeof ALERTS) => {
      const rest = match.endsWith('</p>\n') ? '' : '<p>'
      return `<blockquote class="${kind.toLowerCase()}"><p class="title">${ALERTS[kind]}</p>${rest}`
    },
  )
}

function classOf(line: string): string {
  if (line.startsWith('::error')) return 'error'
  return line.startsWith('▸') ? 'group' : 'line'
}

function escaped(line: string): string {
  const shown = line.replace(/^::error title=(.*?)::/, 'Error: ')
  return shown.replace(/[&<>]/g, character => `&#${character.codePointAt(0)};`)
}

function page(style: string, body: string): string {
  return `<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>${style}</style>${body}`
}

const FONT = '"Liberation Sans", "DejaVu Sans", Helvetica, Arial, sans-serif, "Noto Color Emoji"'
const MONO = '"Liberation Mono", "DejaVu Sans Mono", monospace'

const SUMMARY_STYLE = `
body { margin: 0; padding: 16px; background: #fff; color: #1f2328; font: 14px/1.5 ${FONT}; overflow-wrap: anywhere; }
article > :first-child { margin-top: 0; } article > :last-child { margin-bottom: 0; }
h3 { font-size: 1.3em; line-height: 1.3; margin: 0 0 12px; }
p, table, ul, blockquote, details { margin: 0 0 12px; }
ul { padding-left: 1.6em; }
a { color: #0969da; text-decoration: none; }
code { font: 85% ${MONO}; background: #eff1f3; border-radius: 5px; padding: 0.15em 0.35em; overflow-wrap: anywhere; }
table { display: block; max-width: 100%; overflow: auto; border-collapse: collapse; overflow-wrap: normal; }
th, td { border: 1px solid #d1d9e0; padding: 5px 11px; text-align: left; }
td code { overflow-wrap: normal; }
tr:nth-child(2n) td { background: #f6f8fa; }
blockquote { border-left: 4px solid #d1d9e0; padding: 2px 14px; }
blockquote p, blockquote ul { margin: 4px 0; } blockquote .title { font-weight: 600; }
.note { border-color: #0969da; } .note .title { color: #0969da; }
.warning { border-color: #9a6700; } .warning .title { color: #9a6700; }
.caution { border-color: #cf222e; } .caution .title { color: #d1242f; }`

const LOG_STYLE = `
body { margin: 0; padding: 14px 16px; background: #1f2328; color: #e6edf3; font: 12px/1.7 ${MONO}; }
div { overflow-wrap: anywhere; padding-left: 1.5em; text-indent: -1.5em; }
.error { color: #ff7b72; }
.line { color: #e6edf3; }`

/** A picture. `name` is the name of its file, without the extension. */
interface HubPicture {
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
