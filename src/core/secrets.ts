const SHORTEST_REDACTED = 4

/**
 * A function that replaces every secret in a text by `***`: for what is written to files and outputs, which the
 * runner does not mask. Secrets under 4 characters are left, because replacing them would garble every sentence.
 */
export function createRedactor(secrets: readonly (string | undefined)[]): (text: string) => string {
  const known = secrets
    .flatMap(secret => (secret === undefined ? [] : [secret, secret.trim(), ...secret.split(/\r?\n/)]))
    .filter(secret => secret.length >= SHORTEST_REDACTED)
    .sort((a, b) => b.length - a.length)
  const forms = [
    ...new Set(known.flatMap(secret => [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret)])),
  ]
  return text => forms.reduce((redacted, secret) => redacted.replaceAll(secret, '***'), text)
}
