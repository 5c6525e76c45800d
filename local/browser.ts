import type { Browser } from 'playwright-core'
import { findProgram } from './find-program.ts'

const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome']

/** Returns why this machine cannot show a page, for a test's `skip`; false if it can. */
export function whyNoBrowser(): string | false {
  return (
    chromiumPath() === undefined && `none of ${PROGRAMS.join(', ')} is on PATH, so run \`apt-get install chromium\``
  )
}

/**
 * Starts the machine's Chromium without a window. The caller closes it. Throws if the machine has no Chromium.
 *
 * The library is loaded here, so that a skipped test does not wait for it.
 */
export async function openBrowser(): Promise<Browser> {
  const executablePath = chromiumPath()
  if (executablePath === undefined) throw new Error(`No browser: ${whyNoBrowser()}.`)
  const { chromium } = await import('playwright-core')
  // Chromium's sandbox does not work for root. Chromium shows only our own pages, so it is safe without the sandbox.
  return await chromium.launch({ executablePath, chromiumSandbox: process.getuid?.() !== 0 })
}

function chromiumPath(): string | undefined {
  return PROGRAMS.map(findProgram).find(path => path !== undefined)
}
