/** The prime of the curve's field, 2^255 - 19. */
const FIELD_PRIME = 2n ** 255n - 19n
const SIGN_BIT = 2n ** 255n
const ORDER_8_Y = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n

/** The y of every point whose order divides 8; each y belongs to the points with x and -x. */
const SMALL_ORDER_Y: ReadonlySet<bigint> = new Set([0n, 1n, FIELD_PRIME - 1n, ORDER_8_Y, FIELD_PRIME - ORDER_8_Y])

/**
 * Returns why an Ed25519 public key of 32 raw bytes must not be trusted; undefined if it may be. Under a key of small
 * order, anyone can make signatures that many verifiers accept, including older Node versions. A key that is not in
 * canonical form is a second spelling of another key.
 */
export function publicKeyProblem(raw: Buffer): string | undefined {
  const y = littleEndian(raw) % SIGN_BIT
  if (y >= FIELD_PRIME) return 'is not in the canonical form'
  if (SMALL_ORDER_Y.has(y)) return 'is of small order, so anyone can sign for it'
  return undefined
}

function littleEndian(bytes: Buffer): bigint {
  return BigInt(`0x${Buffer.from(bytes).reverse().toString('hex')}`)
}
