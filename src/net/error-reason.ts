const MAX_REASON_CHARS = 4000

/** The fields of a refusal's JSON body that may say why, in the order of their weight. */
export type ReasonFields = readonly [error: unknown, detail: unknown, message: unknown]

/** `error`, `detail` and `message` of a JSON object; nothing of what else a server may answer with. */
export function readReasonFields(body: unknown): ReasonFields {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return [undefined, undefined, undefined]
  const { error, detail, message } = body as Record<string, unknown>
  return [error, detail, message]
}

/** A reason as text, not cleaned; what is not text, as some frameworks answer, as JSON. Undefined for an empty one. */
export function reasonText(field: unknown): string | undefined {
  if (field === undefined || field === null || field === '') return undefined
  return (typeof field === 'string' ? field : JSON.stringify(field)).slice(0, MAX_REASON_CHARS)
}
