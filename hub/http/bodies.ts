import type { Context } from 'hono'
import type { z } from 'zod'
import { HubError } from '../errors.ts'
import { parseInput } from '../names.ts'

/**
 * Reads the JSON body. Throws HubError 415 for a different content type, and 400 for malformed JSON or a wrong field.
 */
export async function readJsonBody<T>(c: Context, schema: z.ZodType<T>): Promise<T> {
  const contentType = c.req.header('content-type')?.split(';')[0]?.trim().toLowerCase()
  if (contentType !== 'application/json') throw new HubError(415, 'The Content-Type must be application/json.')
  return parseInput(schema, parseJson(await c.req.text()))
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new HubError(400, 'The request body is not valid JSON.')
  }
}

const MAX_PARTS = 20
const MAX_HEADER_BYTES = 8 * 1024
const CRLF = Buffer.from('\r\n')
const END_OF_HEADERS = Buffer.from('\r\n\r\n')
const BOUNDARY =
  /^multipart\/form-data\s*;(?:.*;)?\s*boundary=(?:"([\w'()+,./:=?-]{1,70})"|([\w'+.-]{1,70}))\s*(?:;.*)?$/i
const DISPOSITION = /^content-disposition:[ \t]*form-data((?:;[ \t]*[\w*-]+=(?:"[^"\r\n]*"|[^\s;"]+)[ \t]*)*)$/im

/** The most bytes before a delimiter, and the fault to report if a body has more. */
interface Bound {
  readonly maxBytes: number
  readonly fault: string
}

const BEFORE_FIRST_PART: Bound = { maxBytes: 0, fault: 'does not begin with the boundary that its Content-Type names' }
const HEADERS: Bound = {
  maxBytes: MAX_HEADER_BYTES,
  fault: `has a part with more than ${MAX_HEADER_BYTES} bytes of headers`,
}

/** One part of a form. Its bytes must be read or skipped before the next part is requested. */
interface Part {
  readonly name: string
  readonly chunks: AsyncIterable<Buffer>
}

/** The boundary of a multipart/form-data content type; undefined for any other type. */
export function boundaryOf(contentType: string): string | undefined {
  const [, quoted, plain] = BOUNDARY.exec(contentType) ?? []
  return quoted ?? plain
}

/**
 * Yields the parts of a multipart/form-data body as its bytes arrive, with little more than a chunk in memory. Throws
 * HubError 400 if the body is cut off, does not begin with its boundary, has more than 20 parts, or has a boundary
 * without a line break after it. Also throws for a part that has no name or more than 8 KiB of headers.
 */
export async function* readParts(body: AsyncIterable<Uint8Array>, boundary: string): AsyncGenerator<Part> {
  const delimiter = Buffer.from(`\r\n--${boundary}`)
  const scanner = new Scanner(body)
  await scanner.collect(delimiter, BEFORE_FIRST_PART)
  for (let count = 1; !(await isLast(scanner)); count++) {
    if (count > MAX_PARTS) throw malformed(`has more than ${MAX_PARTS} parts`)
    const headers = (await scanner.collect(END_OF_HEADERS, HEADERS)).toString('utf8')
    const chunks = scanner.until(delimiter)
    yield { name: parseName(headers), chunks }
    for await (const _ of chunks);
  }
}

async function isLast(scanner: Scanner): Promise<boolean> {
  const next = await scanner.take(2)
  if (next.equals(CRLF)) return false
  if (next.toString() === '--') return true
  throw malformed('has a boundary that is not followed by a line break')
}

function parseName(headers: string): string {
  const [, parameters = ''] = DISPOSITION.exec(headers) ?? []
  const [, quoted, plain] = /;[ \t]*name=(?:"([^"]*)"|([^\s;"]+))/i.exec(parameters) ?? []
  const name = quoted ?? plain
  if (!name) throw malformed('has a part without a valid name')
  return name
}

/**
 * Finds delimiters in a stream. The scanner starts as if a line had just ended, because the first delimiter has no line
 * break before it.
 */
class Scanner {
  readonly #source: AsyncIterator<Uint8Array>
  #waiting: Buffer = CRLF

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]()
  }

  /** Yields the bytes before the next delimiter, and consumes the delimiter. */
  async *until(delimiter: Buffer): AsyncGenerator<Buffer> {
    for (;;) {
      const at = this.#waiting.indexOf(delimiter)
      if (at >= 0) {
        const last = this.#consume(at)
        this.#consume(delimiter.length)
        yield last
        return
      }
      // The last bytes so far may be the beginning of the delimiter.
      const certain = this.#waiting.length - delimiter.length + 1
      if (certain > 0) yield this.#consume(certain)
      await this.#read()
    }
  }

  /** Returns the bytes that `until` yields, as one buffer. Throws HubError 400 for more bytes than the bound allows. */
  async collect(delimiter: Buffer, { maxBytes, fault }: Bound): Promise<Buffer> {
    const chunks: Buffer[] = []
    let length = 0
    for await (const chunk of this.until(delimiter)) {
      length += chunk.length
      if (length > maxBytes) throw malformed(fault)
      chunks.push(chunk)
    }
    return Buffer.concat(chunks)
  }

  async take(length: number): Promise<Buffer> {
    while (this.#waiting.length < length) await this.#read()
    return this.#consume(length)
  }

  #consume(length: number): Buffer {
    const taken = this.#waiting.subarray(0, length)
    this.#waiting = this.#waiting.subarray(length)
    return taken
  }

  async #read(): Promise<void> {
    const { done, value } = await this.#source.next()
    if (done) throw malformed('ends before its last boundary')
    this.#waiting = Buffer.concat([this.#waiting, value])
  }
}

function malformed(fault: string): HubError {
  return new HubError(400, `The multipart body ${fault}.`)
}
