import { cleanForeignText } from '../core/foreign-text.ts'
import { MAX_JSON_BODY_BYTES } from '../core/limits.ts'
import type { Exchange } from './exchange.ts'
import { MAX_QUOTED_BODY_CHARS } from './limits.ts'

/** A body to read rather than to install. */
export interface AnswerText {
  /** Parsed; undefined when it is empty, not JSON, or longer than MAX_JSON_BODY_BYTES. */
  body: unknown
  /** The first MAX_JSON_BODY_BYTES at most; not to be printed. */
  decoded: string
  /** Its beginning, cleaned, for messages. */
  text: string
  /** Whether the body was longer than MAX_JSON_BODY_BYTES; the rest was not read. */
  cut: boolean
}

/** Reads at most MAX_JSON_BODY_BYTES of an answer's body and closes it. Throws as the exchange's body does. */
export async function readAnswerText(exchange: Exchange): Promise<AnswerText> {
  if (isEncoded(exchange)) {
    exchange.close()
    return { body: undefined, decoded: '', text: '', cut: false }
  }
  const { bytes, cut } = await readCapped(exchange.body)
  const decoded = new TextDecoder().decode(bytes)
  const text = cleanForeignText(decoded, MAX_QUOTED_BODY_CHARS)
  return { body: cut ? undefined : parseJson(decoded), decoded, text, cut }
}

/** Whether the body has a Content-Encoding; no request asks for one. */
export function isEncoded(exchange: Exchange): boolean {
  return !['', 'identity'].includes((exchange.headers['content-encoding'] ?? '').trim().toLowerCase())
}

async function readCapped(body: AsyncIterable<Buffer>): Promise<{ bytes: Buffer; cut: boolean }> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    size += chunk.length
    if (size > MAX_JSON_BODY_BYTES) break
  }
  return { bytes: Buffer.concat(chunks).subarray(0, MAX_JSON_BODY_BYTES), cut: size > MAX_JSON_BODY_BYTES }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
