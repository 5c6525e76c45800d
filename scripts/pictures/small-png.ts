import { crc32, deflateSync, inflateSync } from 'node:zlib'

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
const MAX_COLORS = 256
const RGB = 3

interface Pixels {
  readonly width: number
  readonly height: number
  /** Three bytes for each pixel, row by row. */
  readonly rgb: Buffer
}

/**
 * Returns the picture in about a third of the bytes: keeps the 256 most frequent colors, and replaces each other color
 * with the nearest of these. Meant for screenshots of text, in which the other colors are only at the edges of letters.
 * Reads only the format that Chromium writes, RGB with 8 bits for each channel.
 */
export function shrinkPng(png: Buffer): Buffer {
  const { width, height, rgb } = readPixels(png)
  const colors = commonColors(rgb)
  const indexes = new Map(colors.map((color, index) => [color, index]))
  const rows = Buffer.alloc((width + 1) * height)
  for (let pixel = 0; pixel < width * height; pixel++) {
    const color = rgb.readUIntBE(pixel * RGB, RGB)
    const index = indexes.get(color) ?? nearest(colors, color)
    indexes.set(color, index)
    rows[pixel + Math.floor(pixel / width) + 1] = index
  }
  const head = Buffer.alloc(13)
  head.writeUInt32BE(width, 0)
  head.writeUInt32BE(height, 4)
  head.set([8, 3], 8)
  const palette = Buffer.alloc(colors.length * RGB)
  for (const [index, color] of colors.entries()) palette.writeUIntBE(color, index * RGB, RGB)
  const data = deflateSync(rows, { level: 9, memLevel: 9 })
  return Buffer.concat([SIGNATURE, chunk('IHDR', head), chunk('PLTE', palette), chunk('IDAT', data), chunk('IEND')])
}

function commonColors(rgb: Buffer): number[] {
  const counts = new Map<number, number>()
  for (let at = 0; at < rgb.length; at += RGB) {
    const color = rgb.readUIntBE(at, RGB)
    counts.set(color, (counts.get(color) ?? 0) + 1)
  }
  const byCount = [...counts].toSorted(([, a], [, b]) => b - a)
  return byCount.slice(0, MAX_COLORS).map(([color]) => color)
}

function nearest(colors: readonly number[], wanted: number): number {
  const distances = colors.map(color =>
    [16, 8, 0].reduce((sum, shift) => sum + (((color >> shift) & 255) - ((wanted >> shift) & 255)) ** 2, 0),
  )
  return distances.indexOf(Math.min(...distances))
}

function readPixels(png: Buffer): Pixels {
  const chunks = readChunks(png)
  const [head] = chunks.get('IHDR') ?? []
  if (head === undefined || head[8] !== 8 || head[9] !== 2) throw new Error('This is not an 8-bit RGB PNG.')
  const [width, height] = [head.readUInt32BE(0), head.readUInt32BE(4)]
  const filtered = inflateSync(Buffer.concat(chunks.get('IDAT') ?? []))
  return { width, height, rgb: unfilter(filtered, width * RGB, height) }
}

function readChunks(png: Buffer): Map<string, Buffer[]> {
  const chunks = new Map<string, Buffer[]>()
  for (let at = SIGNATURE.length; at < png.length; ) {
    const [size, name] = [png.readUInt32BE(at), png.toString('latin1', at + 4, at + 8)]
    chunks.set(name, [...(chunks.get(name) ?? []), png.subarray(at + 8, at + 8 + size)])
    at += size + 12
  }
  return chunks
}

/** Each row begins with the number of its filter (PNG specification, section 9). */
function unfilter(filtered: Buffer, stride: number, height: number): Buffer {
  const bytes = Buffer.alloc(stride * height)
  for (let at = 0; at < bytes.length; at++) {
    const [row, column] = [Math.floor(at / stride), at % stride]
    const left = column < RGB ? 0 : (bytes[at - RGB] as number)
    const above = row === 0 ? 0 : (bytes[at - stride] as number)
    const corner = row === 0 || column < RGB ? 0 : (bytes[at - stride - RGB] as number)
    const how = filtered[row * (stride + 1)] as number
    bytes[at] = (filtered[at + row + 1] as number) + predict(how, { left, above, corner })
  }
  return bytes
}

function predict(how: number, { left, above, corner }: { left: number; above: number; corner: number }): number {
  const guess = left + above - corner
  const [toLeft, toAbove, toCorner] = [left, above, corner].map(value => Math.abs(guess - value)) as [
    number,
    number,
    number,
  ]
  const paeth = toLeft <= toAbove && toLeft <= toCorner ? left : toAbove <= toCorner ? above : corner
  return [0, left, above, (left + above) >> 1, paeth][how] ?? 0
}

function chunk(name: string, data: Buffer = Buffer.alloc(0)): Buffer {
  const body = Buffer.concat([Buffer.from(name, 'latin1'), data])
  const [size, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  size.writeUInt32BE(data.length)
  sum.writeUInt32BE(crc32(body))
  return Buffer.concat([size, body, sum])
}
