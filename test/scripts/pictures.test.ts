import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { crc32, deflateSync, inflateSync } from 'node:zlib'
import { openBrowser, whyNoBrowser } from '../../local/browser.ts'
import { logPage, summaryPage } from '../../scripts/pictures/pages.ts'
import { shrinkPng } from '../../scripts/pictures/small-png.ts'
import { alert, details } from '../../src/core/text.ts'
import { whyLeftToCi } from '../extent.ts'

describe('a page of a summary', () => {
  it('shows highlighted blocks with their titles, one line or several', () => {
    const html = summaryPage([alert('WARNING', ['one']), alert('CAUTION', ['**two**', 'three'])].join('\n\n'))
    assert.match(html, /<blockquote class="warning"><p class="title">Warning<\/p><p>one<\/p>/)
    assert.match(html, /<blockquote class="caution"><p class="title">Caution<\/p><ul>\n<li><strong>two<\/strong><\/li>/)
    assert.doesNotMatch(html, /\[!/)
  })

  it('is laid out by a browser: details are closed, and nothing is wider than a phone', {
    skip: whyLeftToCi() || whyNoBrowser(),
  }, async () => {
    const browser = await openBrowser()
    try {
      const page = await browser.newPage({ viewport: { width: 390, height: 100 } })
      await page.setContent(summaryPage(`### ${'long'.repeat(40)}\n\n${details('More', ['hidden words'])}`))
      assert.equal(await page.getByText('hidden words').isVisible(), false)
      assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 390)
      const png = await page.screenshot({ fullPage: true })
      assert.ok(shrinkPng(png).length < png.length)
    } finally {
      await browser.close()
    }
  })
})

describe('a page of a log', () => {
  it('shows text as it is', () => {
    assert.match(logPage(['a <b>']), /a &#60;b&#62;/)
  })
})

describe('shrinkPng', () => {
  it('keeps every pixel of a picture with few colors, however its rows are filtered', () => {
    const [red, blue] = [
      [255, 0, 0],
      [0, 0, 255],
    ]
    // Row by row: unchanged; the difference from the left; the difference from above.
    const rows = [
      [0, ...(red ?? []), ...(blue ?? [])],
      [1, ...(red ?? []), 1, 0, 255],
      [2, 0, 0, 0, 0, 0, 0],
    ]
    const shrunk = shrinkPng(pngOf({ width: 2, height: 3, type: 2 }, Buffer.from(rows.flat())))
    const palette = chunkOf(shrunk, 'PLTE')
    const pixels = [...inflateSync(chunkOf(shrunk, 'IDAT'))].filter((_, at) => at % 3 !== 0)
    const colors = pixels.map(index => [...palette.subarray(index * 3, index * 3 + 3)])
    assert.deepEqual(colors, [red, blue, red, blue, red, blue])
  })

  it('refuses a picture that Chromium would not write', () => {
    assert.throws(() => shrinkPng(pngOf({ width: 1, height: 1, type: 6 }, Buffer.alloc(5))), /8-bit RGB/)
  })
})

interface Head {
  readonly width: number
  readonly height: number
  readonly type: number
}

function pngOf({ width, height, type }: Head, rows: Buffer): Buffer {
  const head = Buffer.alloc(13)
  head.writeUInt32BE(width, 0)
  head.writeUInt32BE(height, 4)
  head.set([8, type], 8)
  const chunks = Object.entries({ IHDR: head, IDAT: deflateSync(rows) }).map(([name, data]) => {
    const body = Buffer.concat([Buffer.from(name), data])
    const [size, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
    size.writeUInt32BE(data.length)
    sum.writeUInt32BE(crc32(body))
    return Buffer.concat([size, body, sum])
  })
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), ...chunks])
}

function chunkOf(png: Buffer, name: string): Buffer {
  const at = png.indexOf(name)
  return png.subarray(at + 4, at + 4 + png.readUInt32BE(at - 4))
}
