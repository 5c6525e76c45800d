import assert from 'node:assert/strict'
import { after, before, describe, it, type TestContext } from 'node:test'
import type { Browser, BrowserContextOptions, Page } from 'playwright-core'
import { openBrowser, whyNoBrowser } from '../../../local/browser.ts'
import { HANG_LIMIT_MS, sampled, whyLeftToCi } from '../../extent.ts'
import { type HubUnderTest, runHub } from '../running-hub.ts'
import { NOW, report } from '../stored-reports.ts'

const PHONE = { width: 390, height: 844 }
const WIDE = { width: 1200, height: 900 }
const NAME_OF_64 = 'n'.repeat(64)
const DIGEST = 'e5193da1'.repeat(8)
const MIN_CONTRAST = 4.5

describe('the fleet page in a browser', { skip: whyLeftToCi() || whyNoBrowser(), timeout: HANG_LIMIT_MS }, () => {
  let browser: Browser
  before(async () => {
    browser = await openBrowser()
  })
  after(async () => await browser.close())

  it('filters, clears the filter and turns pages, without a script', async t => {
    const { page } = await open(t, { javaScriptEnabled: false }, hub => {
      hub.store.db.exec('PRAGMA synchronous = OFF')
      for (let n = 1; n <= 103; n++) report(hub.store, { host_id: `app-${n}` })
      report(hub.store, { host_id: 'web-1', status: 'failed', error_message: 'It is down.' })
    })
    assert.deepEqual((await hostsOn(page)).slice(0, 3), ['web-1', 'app-1', 'app-2'])
    assert.match(await textOn(page, 'nav'), /1–100 of 104/)
    await page.getByRole('link', { name: 'Next' }).click()
    assert.deepEqual(await hostsOn(page), ['app-100', 'app-101', 'app-102', 'app-103'])
    await page.getByRole('searchbox').fill('APP-10')
    await page.getByRole('button', { name: 'Filter' }).click()
    assert.deepEqual(await hostsOn(page), ['app-10', 'app-100', 'app-101', 'app-102', 'app-103'])
    assert.equal(await page.getByRole('searchbox').inputValue(), 'APP-10')
    await page.getByRole('checkbox').check()
    await page.getByRole('button', { name: 'Filter' }).click()
    assert.deepEqual(await hostsOn(page), [])
    await page.getByRole('link', { name: 'Show all' }).click()
    assert.equal((await hostsOn(page)).length, 100)
    await page.getByRole('link', { name: 'needs attention' }).click()
    assert.deepEqual(await hostsOn(page), ['web-1'])
    assert.equal(await page.getByRole('checkbox').isChecked(), true)
  })

  it('can be used with the keyboard alone, and shows where the focus is', async t => {
    const { page } = await open(t, { viewport: WIDE }, hub => {
      report(hub.store, { host_id: 'app-1', status: 'failed' })
      report(hub.store, { host_id: 'app-2' })
    })
    for (const role of ['A', 'INPUT', 'INPUT', 'BUTTON']) {
      await page.keyboard.press('Tab')
      const focused = await page.evaluate<Focused>(FOCUSED)
      assert.equal(focused.tag, role)
      assert.ok(focused.outlineStyle !== 'none' && focused.width >= 2, JSON.stringify(focused))
    }
    await page.getByRole('searchbox').focus()
    await page.keyboard.type('app-2')
    await page.keyboard.press('Enter')
    await page.waitForURL(/q=app-2/)
    assert.deepEqual(await hostsOn(page), ['app-2'])
  })

  for (const [name, viewport] of sampled(
    [
      ['a phone', PHONE],
      ['a small phone', { width: 320, height: 600 }],
      ['a tablet', { width: 700, height: 900 }],
      ['a desktop', WIDE],
    ] as const,
    2,
  )) {
    it(`fits ${name}, with names of 64 characters and long messages`, async t => {
      const { page } = await open(t, { viewport }, longNames)
      assert.deepEqual(await page.evaluate(OVERFLOWING), [])
      assert.equal(await page.evaluate(WIDTH), viewport.width)
      for (const text of [NAME_OF_64, 'e5193da1…3da1'])
        assert.ok(await page.getByText(text, { exact: true }).first().isVisible(), text)
    })
  }

  for (const colorScheme of ['light', 'dark'] as const) {
    it(`has enough contrast in its ${colorScheme} colors`, async t => {
      const { page } = await open(t, { viewport: WIDE, colorScheme }, longNames)
      const texts = await page.evaluate<TextOnPage[]>(CONTRASTS)
      assert.ok(texts.length > 30, `${texts.length}`)
      assert.deepEqual(
        texts.filter(({ contrast }) => contrast < MIN_CONTRAST),
        [],
      )
      const cells = texts.filter(({ tag }) => tag === 'TD')
      assert.ok(cells.length > 0 && cells.every(({ background }) => background < 0.1 === (colorScheme === 'dark')))
    })
  }

  it('does not rely on colors alone', async t => {
    const { page } = await open(t, { viewport: WIDE }, hub => {
      report(hub.store, { host_id: 'a', status: 'failed' })
      report(hub.store, { host_id: 'b', status: 'rolled_back' })
      report(hub.store, { host_id: 'c' })
    })
    const rows = await page.locator('.fleet tbody').allTextContents()
    assert.match(rows[0] ?? '', /✗.*the last deployment failed[\s\S]*1\.0\.0 failed/)
    assert.match(rows[1] ?? '', /↩.*the last deployment was rolled back[\s\S]*1\.0\.0 was rolled back/)
    assert.match(rows[2] ?? '', /✓.*the last deployment succeeded/)
  })

  it('runs no script that a host reports, and keeps its layout', async t => {
    const hostile = `<script>document.title='owned'</script><img src=x onerror="document.title='owned'">`
    const { page, complaints } = await open(t, { viewport: PHONE }, async hub => {
      await hub.publish({ name: `${hostile}\u202eevil` })
      report(hub.store, { host_id: hostile, status: 'failed', error_message: hostile, owner: hostile })
      report(hub.store, {
        host_id: '\u202etxt.exe',
        status: 'rolled_back',
        error_message: 'é\u0301\u0301'.repeat(3_000),
      })
      report(hub.store, { host_id: '0', status: 'failed', error_message: 'x'.repeat(10_000) })
      report(hub.store, { host_id: 'עברית', status: 'failed', error_message: 'שגיאה 1.0.0' })
    })
    assert.equal(await page.title(), '(4) Fleet')
    assert.deepEqual(await page.locator('script, img, iframe, object').count(), 0)
    assert.deepEqual((await hostsOn(page)).sort(), ['0', hostile, 'עברית', '‹U+202E›txt.exe'].sort())
    assert.equal(await page.evaluate(WIDTH), PHONE.width)
    const tallest = await page.evaluate<number>(TALLEST)
    assert.ok(tallest < 500, `${tallest}`)
    assert.deepEqual(complaints, [])
  })

  it('loads, runs and sends only its own resources', async t => {
    const { page, complaints } = await open(t, { viewport: WIDE }, hub => report(hub.store, {}))
    assert.deepEqual(complaints, [])
    await page.evaluate(INTRUDERS)
    assert.equal(await page.evaluate('document.title'), 'Fleet')
    const refused = complaints.join('\n')
    for (const rule of ['img-src', 'style-src', 'script-src', 'form-action'])
      assert.ok(refused.includes(rule), `${rule}: ${refused}`)
  })

  /** Opens the page of a hub in a new window. `complaints` are the browser's reports about the page. */
  async function open(
    t: TestContext,
    options: BrowserContextOptions,
    fill: (hub: HubUnderTest) => unknown,
  ): Promise<{ page: Page; complaints: string[] }> {
    const hub = await runHub(t, { now: () => NOW })
    await fill(hub)
    const context = await browser.newContext(options)
    t.after(() => context.close())
    const page = await context.newPage()
    const complaints: string[] = []
    page.on('console', message => complaints.push(message.text()))
    page.on('pageerror', error => complaints.push(error.message))
    page.on('requestfailed', request => complaints.push(request.url()))
    await page.goto(hub.url)
    return { page, complaints }
  }
})

async function longNames(hub: HubUnderTest): Promise<void> {
  await hub.publish({ name: NAME_OF_64, slug: 's'.repeat(64) })
  await hub.publish({ kind: 'service', slug: 'mail', version: DIGEST })
  report(hub.store, {
    host_id: NAME_OF_64,
    slug: 's'.repeat(64),
    version: 'v'.repeat(64),
    owner: 'o'.repeat(64),
    hoursAgo: 2,
  })
  report(hub.store, {
    host_id: NAME_OF_64,
    slug: 's'.repeat(64),
    version: '1.0.0-alpha.0123456789.0123456789.0123456789',
    owner: 'o'.repeat(64),
    status: 'failed',
    error_message: `${'m'.repeat(200)} and words that follow it.`,
  })
  report(hub.store, { host_id: 'b', slug: 'u'.repeat(64), status: 'rolled_back' })
  report(hub.store, { host_id: 'c', kind: 'service', slug: 'mail', version: DIGEST })
}

async function hostsOn(page: Page): Promise<string[]> {
  return await page.locator('.fleet tbody .host > bdi').allTextContents()
}

async function textOn(page: Page, selector: string): Promise<string> {
  return (await page.locator(selector).textContent()) ?? ''
}

interface Focused {
  readonly tag: string
  readonly outlineStyle: string
  readonly width: number
}

interface TextOnPage {
  readonly tag: string
  readonly text: string
  readonly contrast: number
  /** The background's luminance, from 0 (black) to 1. */
  readonly background: number
}

// The code below runs in the browser, whose types the rest of the project must not see.

const WIDTH = 'document.documentElement.scrollWidth'
const TALLEST = `Math.max(...[...document.querySelectorAll('.fleet tbody')].map(row => row.clientHeight))`

const FOCUSED = `(() => {
  const { outlineStyle, outlineWidth } = getComputedStyle(document.activeElement)
  return { tag: document.activeElement.tagName, outlineStyle, width: parseFloat(outlineWidth) }
})()`

/** The elements that reach beyond the window, or whose content is wider than the element. */
const OVERFLOWING = `[...document.querySelectorAll('header *, main *')]
  .filter(element => !element.closest('.hidden, thead'))
  .filter(element => element.getBoundingClientRect().right > innerWidth
    || (element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1))
  .map(element => element.outerHTML.slice(0, 200))`

/** The contrast of each text with its background (WCAG 2.2, 1.4.3). */
const CONTRASTS = `(() => {
  const channels = color => (color.match(/[\\d.]+/g) ?? []).map(Number)
  const luminance = color => {
    const [r, g, b] = channels(color).map(value => {
      const share = value / 255
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const behind = element => {
    const { backgroundColor } = getComputedStyle(element)
    return channels(backgroundColor)[3] === 0 ? behind(element.parentElement) : backgroundColor
  }
  return [...document.querySelectorAll('body *')]
    .filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
    .filter(element => !element.closest('.hidden, style'))
    .map(element => {
      const background = luminance(behind(element))
      const [low, high] = [luminance(getComputedStyle(element).color), background].sort((a, b) => a - b)
      return { tag: element.tagName, text: element.textContent, contrast: (high + 0.05) / (low + 0.05), background }
    })
})()`

/** Adds elements that a page must not load, run or send. Resolves once the browser has refused all of them. */
const INTRUDERS = `new Promise(resolve => {
  let refused = 0
  addEventListener('securitypolicyviolation', () => { if (++refused === 4) setTimeout(resolve) })
  const image = document.createElement('img')
  image.src = 'https://example.invalid/x.png'
  const style = document.createElement('style')
  style.textContent = 'body { color: red }'
  const script = document.createElement('script')
  script.textContent = 'document.title = "owned"'
  const form = document.createElement('form')
  form.action = 'https://example.invalid/'
  document.body.append(image, style, script, form)
  form.submit()
})`
