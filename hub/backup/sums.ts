/** The last file of a backup: the SHA-256 of every other file, in the format of sha256sum. */
export const SUMS_FILE = 'SHA256SUMS'

export function formatSums(sums: ReadonlyMap<string, string>): Buffer {
  return Buffer.from([...sums].map(([name, sha256]) => `${sha256}  ${name}\n`).join(''))
}
