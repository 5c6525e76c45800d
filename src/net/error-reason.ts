const MAX_REASON_CHARS = 4000

/** The fields of a refusal's JSON body that may give its reason, the most important first. */
export type ReasonFields = readonly [error: unknown, detail: unknown, message: unknown]

/** Reads `error`, `detail` and `message` of a JSON object, and ignores anything else that a server may answer with. */
export function readReasonFields(body: unknown): ReasonFields {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return [undefined, undefined, undefined]
  const { error, detail, message } = body as Record<string, unknown>
  return [error, detail, message]
}

/**
 * Returns at most MAX_REASON_CHARS of a reason as text, not cleaned; undefined for an empty one. A reason that is not
 * text, which some frameworks send, becomes JSON.
 */
export function reasonText(field: unknown): string | undefined {
  if (field === undefined || field === null || field === '') return undefined
  return (typeof field === 'string' ? field : JSON.stringify(field)).slice(0, MAX_REASON_CHARS)
}
