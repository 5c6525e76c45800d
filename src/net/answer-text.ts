import { cleanForeignText } from '../core/foreign-text.ts'
import { MAX_JSON_BODY_BYTES } from '../core/limits.ts'
import type { Exchange } from './exchange/exchange.ts'
import { MAX_QUOTED_BODY_CHARS } from './limits.ts'

const MAX_CONTAINERS = 1_000_000
const [OPENS_LIST, OPENS_OBJECT] = [0x5b, 0x7b]

/** The body of an answer, as text and as JSON. */
export interface AnswerText {
  /** Parsed; undefined if the body is empty, encoded, not JSON, too long, or contains over a million `[` and `{`. */
  body: unknown
  /** The text of the bytes that were read; not to be printed. */
  decoded: string
  /** The beginning of the body, cleaned, for messages. */
  text: string
  /** True if the body was too long; its end is missing here. */
  cut: boolean
}

/** Keeps at most `maxBytes` of an answer's body, and nothing of an encoded body. Throws as the exchange's body does. */
export async function readAnswerText(exchange: Exchange, maxBytes = MAX_JSON_BODY_BYTES): Promise<AnswerText> {
  if (isEncoded(exchange)) {
    exchange.close()
    return { body: undefined, decoded: '', text: '', cut: false }
  }
  const { bytes, cut } = await readCapped(exchange.body, maxBytes)
  const decoded = new TextDecoder().decode(bytes)
  const text = cleanForeignText(decoded, MAX_QUOTED_BODY_CHARS)
  return { body: cut || isCostly(bytes) ? undefined : parseJson(decoded), decoded, text, cut }
}

/** True if the body has a Content-Encoding other than `identity`, although each request accepts only `identity`. */
export function isEncoded(exchange: Exchange): boolean {
  return !['', 'identity'].includes((exchange.headers['content-encoding'] ?? '').trim().toLowerCase())
}

async function readCapped(body: AsyncIterable<Buffer>, maxBytes: number): Promise<{ bytes: Buffer; cut: boolean }> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    size += chunk.length
    if (size > maxBytes) break
  }
  return { bytes: Buffer.concat(chunks).subarray(0, maxBytes), cut: size > maxBytes }
}

/** True if parsing would cost too much: millions of empty or nested lists would need a gigabyte of memory. */
function isCostly(bytes: Buffer): boolean {
  let room = MAX_CONTAINERS
  for (const byte of bytes) if ((byte === OPENS_LIST || byte === OPENS_OBJECT) && --room < 0) return true
  return false
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
