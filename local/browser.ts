import type { Browser } from 'playwright-core'
import { findProgram } from './find-program.ts'

const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome']

/** Returns why this machine cannot show a page, for a test's `skip`; false if it can. */
export function whyNoBrowser(): string | false {
  return chromiumPath() === undefined && `none of ${PROGRAMS.join(', ')} is on PATH: apt-get install chromium`
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
  // Chromium's own sandbox refuses to start as root. Without the sandbox, Chromium is safe enough, because Chromium shows nothing but
  // our own pages.
  return await chromium.launch({ executablePath, chromiumSandbox: process.getuid?.() !== 0 })
}

function chromiumPath(): string | undefined {
  return PROGRAMS.map(findProgram).find(path => path !== undefined)
}
