// Deploys with Node.js, in the ways that cost the least here, and computes the digest of each file, but checks nothing
// else: no listing, no path, no host. It has no lock, no journal and no rollback, and writes no symlinks. Its time is
// the least that an action can take, so it shows what everything else costs. Variables: those of deploy.sh.
import { spawn } from 'node:child_process'
import { createHash, createHmac, hash } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readSync, renameSync, unlinkSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { dirname, join } from 'node:path'
import { crc32, createInflateRaw, gunzip } from 'node:zlib'

const { HUB_URL, SLUG, API_KEY, SIGNING_SECRET, PROJECT_ROOT, WORK } = process.env
const MEBIBYTE = 1024 * 1024
const PIECE_BYTES = 256 * 1024
const PACKED_BATCH_BYTES = 256 * 1024
const GZIP_HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0])
const KEY = { 'X-API-Key': API_KEY, connection: 'close' }

const staging = join(PROJECT_ROOT, '.staging')
const madeFolders = new Set()
const digestsOfFiles = []
const started = new Date().toISOString()
const { latest_version: version } = JSON.parse(await textOf(await send('GET', `/plugins/${SLUG}`)))
const archive = await download(await send('GET', `/plugins/${SLUG}/install?version=${version}`))
await unpack(archive)
await new Promise(done => spawn('sync', ['-f', staging], { stdio: 'ignore' }).on('exit', done))
switchTrees()
unlinkSync(join(WORK, 'artifact.zip'))
await textOf(await send('POST', '/deployments/report', report()))

function send(method, path, body) {
  return new Promise((resolve, reject) => {
    request(`${HUB_URL}${path}`, { method, headers: { ...KEY, 'content-type': 'application/json' } }, resolve)
      .on('error', reject)
      .end(body)
  })
}

async function textOf(answer) {
  let text = ''
  for await (const chunk of answer) text += chunk
  if (answer.statusCode >= 300) throw new Error(`HTTP ${answer.statusCode}: ${text}`)
  return text
}

/** Causes garbage collections; src/core/bytes.ts says why. */
function weigh({ length }) {
  for (let left = length; left > 0; left -= 65_536) weigh.last = Array(8192)
}

async function download(answer) {
  const fd = openSync(join(WORK, 'artifact.zip'), 'w+')
  const digests = [createHmac('sha256', SIGNING_SECRET), createHash('sha256')]
  const block = Buffer.allocUnsafeSlow(MEBIBYTE)
  let [used, size] = [0, 0]
  const flush = () => {
    const bytes = block.subarray(0, used)
    for (const digest of digests) digest.update(bytes)
    writeFileSync(fd, bytes)
    used = 0
  }
  for await (const chunk of answer) {
    weigh(chunk)
    size += chunk.length
    for (let at = 0; at < chunk.length; ) {
      const copied = chunk.copy(block, used, at)
      at += copied
      used += copied
      if (used === block.length) flush()
    }
  }
  flush()
  const [signature] = digests.map(digest => digest.digest('hex'))
  if (answer.headers['x-signature'] !== `hmac_sha256:${signature}`) throw new Error('wrong signature')
  return { fd, size }
}

function read({ fd }, position, length) {
  const bytes = Buffer.allocUnsafe(length)
  readSync(fd, bytes, 0, length, position)
  return bytes
}

function listEntries(zip) {
  const tail = read(zip, Math.max(0, zip.size - 65_557), Math.min(zip.size, 65_557))
  const end = tail.subarray(tail.lastIndexOf('PK\x05\x06'))
  const list = read(zip, end.readUInt32LE(16), end.readUInt32LE(12))
  const entries = []
  for (let at = 0; at < list.length; ) {
    const nameEnd = at + 46 + list.readUInt16LE(at + 28)
    const name = list.latin1Slice(at + 46, nameEnd)
    entries.push({
      path: name.slice(name.indexOf('/') + 1),
      stored: list.readUInt16LE(at + 10) === 0,
      crc: list.readUInt32LE(at + 16),
      packedSize: list.readUInt32LE(at + 20),
      size: list.readUInt32LE(at + 24),
      header: list.readUInt32LE(at + 42),
      mode: list.readUInt16LE(at + 40) & 0o100 ? 0o755 : 0o644,
    })
    at = nameEnd + list.readUInt16LE(at + 30) + list.readUInt16LE(at + 32)
  }
  return entries.filter(({ path }) => path !== '' && !path.endsWith('/'))
}

async function unpack(zip) {
  const window = { start: 0, bytes: Buffer.alloc(0) }
  const look = (position, length) => {
    if (position < window.start || position + length > window.start + window.bytes.length) {
      window.start = position
      window.bytes = read(zip, position, Math.min(Math.max(length, MEBIBYTE), zip.size - position))
    }
    return window.bytes.subarray(position - window.start, position - window.start + length)
  }
  const dataOf = ({ header }) => {
    const bytes = look(header, 30)
    return header + 30 + bytes.readUInt16LE(26) + bytes.readUInt16LE(28)
  }
  const inflating = []
  let batch = { files: [], members: [], packedSize: 0, size: 0 }
  const inflate = () => {
    if (batch.files.length > 0) inflating.push({ files: batch.files, bytes: inflateBatch(batch) })
    batch = { files: [], members: [], packedSize: 0, size: 0 }
  }
  for (const entry of listEntries(zip)) {
    if (entry.size > MEBIBYTE || entry.packedSize > MEBIBYTE) await writeLarge(zip, entry, dataOf(entry))
    else if (entry.stored || entry.size === 0) writeSmall(entry, look(dataOf(entry), entry.stored ? entry.size : 0))
    else {
      if (batch.packedSize + entry.packedSize > PACKED_BATCH_BYTES || batch.size + entry.size > MEBIBYTE) inflate()
      const trailer = Buffer.alloc(8)
      trailer.writeUInt32LE(entry.size, trailer.writeUInt32LE(entry.crc))
      batch.members.push(GZIP_HEADER, Buffer.from(look(dataOf(entry), entry.packedSize)), trailer)
      batch.files.push(entry)
      batch.packedSize += entry.packedSize
      batch.size += entry.size
      if (inflating.length > 2) await writeBatch(inflating.shift())
    }
  }
  inflate()
  for (const inflated of inflating) await writeBatch(inflated)
}

function inflateBatch({ members, size }) {
  return new Promise((resolve, reject) => {
    gunzip(Buffer.concat(members), { chunkSize: Math.max(size + 64, Buffer.poolSize) }, (error, bytes) =>
      error ? reject(error) : resolve(bytes),
    )
  })
}

async function writeBatch({ files, bytes }) {
  const whole = await bytes
  let at = 0
  for (const file of files) {
    writeSmall(file, whole.subarray(at, at + file.size))
    at += file.size
  }
  whole.buffer.transfer(0)
}

function openNew({ path, mode }) {
  const full = join(staging, path)
  const folder = dirname(full)
  if (!madeFolders.has(folder)) mkdirSync(folder, { recursive: true })
  madeFolders.add(folder)
  return openSync(full, 'wx', mode)
}

function writeSmall(file, bytes) {
  const fd = openNew(file)
  writeFileSync(fd, bytes)
  closeSync(fd)
  digestsOfFiles.push(hash('sha256', bytes))
}

async function writeLarge(zip, file, position) {
  const { packedSize, crc } = file
  if (file.stored) throw new Error('This program does not read large files that are not compressed.')
  const inflater = createInflateRaw({
    chunkSize: PIECE_BYTES,
    readableObjectMode: true,
    readableHighWaterMark: 4,
  })
  const feed = async () => {
    for (let at = 0; at < packedSize; at += PIECE_BYTES) {
      const piece = read(zip, position + at, Math.min(PIECE_BYTES, packedSize - at))
      await new Promise(done => inflater.write(piece, done))
    }
    inflater.end()
  }
  void feed()
  const fd = openNew(file)
  const digest = createHash('sha256')
  let found = 0
  for await (const piece of inflater) {
    weigh(piece)
    found = crc32(piece, found)
    digest.update(piece)
    writeFileSync(fd, piece)
  }
  closeSync(fd)
  if (found !== crc) throw new Error('wrong CRC')
  digestsOfFiles.push(digest.digest('hex'))
}

function switchTrees() {
  const place = join(PROJECT_ROOT, 'plugins', SLUG)
  mkdirSync(dirname(place), { recursive: true })
  try {
    renameSync(place, join(PROJECT_ROOT, '.previous'))
  } catch (error) {
    if (error.code !== 'ENOENT') throw error
  }
  renameSync(staging, place)
}

function report() {
  const times = { started_at: started, completed_at: new Date().toISOString() }
  const place = { kind: 'plugin', slug: SLUG, version, host_id: 'bench' }
  return JSON.stringify({ ...place, ...times, status: 'success', repo: null, error_message: null })
}
