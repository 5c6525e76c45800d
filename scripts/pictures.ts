import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { UsageError } from '../hub/errors.ts'
import { openBrowser, whyNoBrowser } from '../local/browser.ts'
import { foldLog, type PlayedEnding, placed, playEndings } from '../test/e2e/harness/endings.ts'
import { hubPictures, logPage, summaryPage } from './pictures/pages.ts'
import { shrinkPng } from './pictures/small-png.ts'
import { runProgram } from './program.ts'

/** The endings whose summaries the docs show. */
const SUMMARIES = [
  'update',
  'update-with-drift',
  'no-change',
  'dry-run',
  'refused-signature',
  'refused-plan',
  'rolled-back',
  'rolled-back-unhealthy',
  'rollback',
  'project-update',
  'gate-passed',
  'fleet-gate-failed',
  'status-drift',
]
const LOGS = ['update', 'rolled-back']
const WIDTHS = { wide: 1000, phone: 390 } as const
const FOLDER = join(import.meta.dirname, '../docs/pictures')

await runProgram({
  name: 'npm run pictures',
  purpose:
    "Runs deployments with the reference hub, and saves pictures of their summaries, their logs and a hub's page to a folder.",
  options: { into: { type: 'string', value: 'FOLDER', help: 'the folder for the pictures (default: docs/pictures)' } },
  async run({ into }) {
    const missing = whyNoBrowser()
    if (missing !== false) throw new UsageError(`No pictures were made: ${missing}.`)
    await makePictures(into ?? FOLDER)
  },
})

/** Runs every ending, and takes pictures of some of them and of the page of a hub. */
async function makePictures(folder: string): Promise<void> {
  const endings = new Map((await playEndings()).map(ending => [ending.name, ending]))
  mkdirSync(folder, { recursive: true })
  const browser = await openBrowser()
  try {
    for (const name of SUMMARIES) {
      const { result, places } = endings.get(name) as PlayedEnding
      const page = summaryPage(placed(result.summary, places))
      await take(browser, page, { path: join(folder, `${name}.png`), width: WIDTHS.wide })
      await take(browser, page, { path: join(folder, `${name}-phone.png`), width: WIDTHS.phone })
    }
    for (const name of LOGS) {
      const { result, places } = endings.get(name) as PlayedEnding
      const log = logPage(foldLog(placed(result.log, places)))
      await take(browser, log, { path: join(folder, `log-${name}.png`), width: WIDTHS.wide })
    }
    for (const { name, png } of await hubPictures(browser)) write(join(folder, `${name}.png`), png)
  } finally {
    await browser.close()
  }
}

interface Picture {
  readonly path: string
  /** In pixels. The height is that of the content. */
  readonly width: number
}

async function take(browser: Browser, html: string, { path, width }: Picture): Promise<void> {
  const page = await browser.newPage({ viewport: { width, height: 100 } })
  await page.setContent(html)
  const png = await page.screenshot({ fullPage: true })
  await page.close()
  write(path, png)
}

function write(path: string, png: Buffer): void {
  const bytes = shrinkPng(png)
  writeFileSync(path, bytes)
  process.stdout.write(`${path}: ${bytes.length} bytes\n`)
}
