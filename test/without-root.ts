const NOBODY = 65_534

/** Does some work without root's rights, even if the tests run as root. */
export async function withoutRoot(work: () => Promise<void>): Promise<void> {
  const user = process.geteuid?.() ?? NOBODY
  if (user === 0) process.seteuid?.(NOBODY)
  try {
    await work()
  } finally {
    if (user === 0) process.seteuid?.(user)
  }
}
